//! What every server with leases of its own must be able to stand.

use leasehold_conformance::trouble::cases;

use crate::scene::Site;

macro_rules! stands {
    ($($name:ident: $case:ident,)*) => {$(
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $name() {
            cases::$case(Site::new()).await;
        }
    )*};
}

stands! {
    a_killed_server_comes_back_with_the_holder_and_the_queue: killed_and_started_again,
    a_server_frozen_for_half_a_lease_costs_nobody_anything: frozen_for_half_a_lease,
    a_server_frozen_for_two_leases_loses_the_holder_by_its_deadline_and_serves_the_next: frozen_for_two_leases,
    sessions_that_are_terminated_all_the_time_cost_nobody_anything: connections_ended_all_the_time,
    a_claim_whose_answer_is_cut_anywhere_is_granted_once: claims_whose_answers_are_cut,
    a_release_whose_answer_is_cut_frees_the_lock: releases_whose_answers_are_cut,
    a_claim_that_hears_no_answer_ends_in_time_and_is_withdrawn: claims_without_an_answer,
    a_holder_that_hears_nothing_is_lost_by_its_deadline_before_the_next_one_holds: holders_that_hear_nothing,
}
