//! Does the suite bite? Stores with one planted bug each, and the case that must catch it.
//!
//! Here they are only listed and made: leasehold-simulation runs them, in one table with the bugs of the runtime.

#[allow(clippy::unwrap_used, reason = "these stores are broken anyway")]
mod store;

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{Fut, Key, Memory, Store};

pub use self::store::Bug;
use self::store::Mutant;
use crate::cases;
use crate::fixture::{Fixture, RawState};
use crate::harness::judge_for_test;
use crate::verdict::Stop;

/// The bug, and a case that is there because of it.
pub const CATCHERS: &[(Bug, &str)] = &[
    (Bug::GrantsToEverybody, "exclusion::a_second_claim_of_the_same_unit_waits"),
    (Bug::CountsNoUnits, "exclusion::claims_hold_together_up_to_the_limit"),
    (Bug::QueuesAndSaysBusy, "exclusion::a_claim_that_would_rather_leave_leaves_nothing"),
    (Bug::LetsEverybodyBarge, "order::a_large_claim_at_the_front_is_not_overtaken"),
    (Bug::HoldsOnlyTheLast, "exclusion::keys_do_not_disturb_each_other"),
    (Bug::TokensFall, "tokens::tokens_rise_across_a_release"),
    (Bug::TokensStartAnew, "tokens::tokens_rise_across_connections"),
    (Bug::TokenIsTheSeat, "tokens::a_promoted_claim_has_the_token_of_its_grant"),
    (Bug::IgnoresTokenAbove, "tokens::the_token_is_above_what_the_claim_asks"),
    (Bug::TellsNobody, "tokens::a_promotion_is_told_and_quotes_seat_and_token"),
    (Bug::TellsTheWrongSeat, "tokens::a_promotion_is_told_and_quotes_seat_and_token"),
    (Bug::LeasesAreHalf, "leases::a_holder_that_is_not_renewed_ends_no_earlier_than_its_lease"),
    (Bug::LeasesNeverEnd, "leases::the_next_in_the_queue_holds_when_the_holder_is_over"),
    (Bug::RenewalDoesNothing, "leases::renewal_keeps_a_claim_for_many_leases"),
    (Bug::RenewalRevives, "leases::a_holder_that_is_over_never_comes_back"),
    (Bug::RenewalCreates, "leases::renewal_never_creates_a_claim"),
    (Bug::AnswersInReverse, "leases::one_answer_per_claim_in_order"),
    (Bug::RepeatsAreNewClaims, "leases::a_repeated_claim_answers_the_same_hold"),
    (Bug::PatienceIsTheLease, "leases::promotion_does_not_move_a_lease"),
    (Bug::NoLockDelay, "leases::lock_delay_blocks_the_key_after_an_expiry"),
    (Bug::ReleasesWhoeverHolds, "ending::a_release_by_a_stranger_ends_nothing"),
    (Bug::ReleaseAlwaysHeld, "ending::release_says_what_it_found"),
    (Bug::LeavesNoMark, "ending::a_withdrawal_that_overtakes_its_claim_refuses_it"),
    (Bug::ConflictIsBusy, "ending::another_limit_is_a_conflict_while_the_key_is_in_use"),
    (Bug::CountsEveryRepeat, "amending::a_count_goes_down_once_per_operation"),
    (Bug::MakesLateChanges, "amending::a_late_copy_of_a_change_undoes_nothing"),
    (Bug::ManyAdopters, "amending::the_second_adopter_finds_it_gone"),
    (Bug::TailIsRelease, "amending::a_tail_keeps_the_units_after_its_owner_has_left"),
    (Bug::EvictsWhoeverHolds, "sight::eviction_needs_the_token_that_holds"),
    (Bug::OnePageOnly, "sight::list_shows_every_key_once_over_all_pages"),
    (Bug::PrefixFoldsCase, "sight::a_prefix_is_text_and_no_pattern"),
    (Bug::NamesFoldCase, "names::odd_names_are_locks_of_their_own"),
    (Bug::NamesAreCut, "names::long_names_are_told_apart_to_the_last_byte"),
    (Bug::IgnoresLowerLimits, "histories::no_grant_exceeds_a_limit_that_goes_up_and_down"),
    (Bug::LeasesEndAtHalf, "histories::kills_cuts_and_evictions_leave_a_clean_history"),
    (Bug::RenewalDoesNothing, "histories::kills_cuts_and_evictions_leave_a_clean_history"),
    (Bug::GrantsToEverybody, "contention::a_mutex_protects_a_counter_and_its_history_is_clean"),
    (Bug::LetsEverybodyBarge, "differential::random_sequences_give_the_answers_of_the_model"),
];

/// What a case complains of on a store in memory that has this bug, or none. `None` when it passes.
///
/// # Panics
/// When there is no such case, or it does not apply.
pub fn complaint(bug: Option<Bug>, case: &str) -> Option<String> {
    complaint_on(move || Broken(Mutant::new(Memory::new(), bug)), case)
}

/// The same on any other store.
///
/// # Panics
/// As [`complaint`].
pub fn complaint_on<F: Fixture>(make: impl Fn() -> F + Send + Sync + 'static, case: &str) -> Option<String> {
    let found = cases::all().into_iter().find(|found| format!("{found:?}") == case);
    let found = found.unwrap_or_else(|| panic!("there is no case {case}"));
    // Names the threads of the trial, by which panics are told apart.
    let trial = format!("{case} {}", fastrand::u64(..));
    match judge_for_test(&trial, move || Ok(Arc::new(make())), found) {
        Ok(()) => None,
        Err(Stop::Fail(what)) => Some(what),
        Err(Stop::Skip(reason)) => panic!("{case} does not apply: {reason}"),
    }
}

#[derive(Debug)]
struct Broken(Mutant);

impl Fixture for Broken {
    fn store(&self) -> Fut<'_, Arc<dyn Store>> {
        Box::pin(async { Ok(Arc::new(self.0.clone()) as _) })
    }

    fn raw_state<'a>(&'a self, key: &'a Key) -> Fut<'a, RawState> {
        Box::pin(async move {
            let residue = self.0.inner.residue();
            Ok(RawState::of_snapshot(self.0.inner.inspect(key).await?.as_ref(), residue))
        })
    }

    fn lease(&self) -> Duration {
        Duration::from_millis(200)
    }
}
