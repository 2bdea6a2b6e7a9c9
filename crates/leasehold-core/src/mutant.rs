//! Planted bugs: mistakes that lock libraries have made, each of which a test must notice.
//!
//! The runtime asks `Mutant::DropLeaks.lives()` at the place where it could be wrong. Without the feature `mutants` the
//! answer is a constant `false` and the branch is not compiled in. Bugs of stores are planted elsewhere: in the
//! conformance suite, which has stores of its own to break.

macro_rules! mutants {
    ($($(#[$what:meta])+ $name:ident),+ $(,)?) => {
        /// A bug of the client runtime that can be planted.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Mutant { $($(#[$what])+ $name),+ }

        impl Mutant {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$name),+];
        }
    };
}

mutants! {
    /// The deadline counts from the reply instead of from before the request.
    DeadlineFromReply,
    /// A guard relies on its whole lease.
    NoMarginForClocks,
    /// A grant on a session that others share extends it.
    GrantExtendsSession,
    /// A promotion starts the lease anew.
    PromotionExtendsLease,
    /// A late promotion is believed by whoever waits for the key.
    PromotionForAnySeat,
    /// An older reply undoes a promotion.
    LateReplyUndoesPromotion,
    /// An older reply undoes an upgrade.
    LateReplyUndoesUpgrade,
    /// Who waits relies on being told.
    NoSafetyPoll,
    /// A promotion that nobody picks up is kept.
    PromotedForNobody,
    /// A claim that a renewal finds granted is held, although its future has not heard of it.
    UnpolledClaimHolds,
    /// A task that inherits a lock holds it, although its future has not heard of it.
    UnpolledHeirHolds,
    /// A task that is parked behind another waits for it without end.
    ParkedForEver,
    /// An attempt that is told "busy" or "gone" forgets its copies that are still on their way.
    BusyForgetsLateCopies,
    /// One failed renewal is the last.
    RenewalStopsAfterError,
    /// A heartbeat hides that a claim is gone.
    NoReconciliation,
    /// What was lost can be granted again.
    LossIsNotFinal,
    /// `max_hold` is forgotten.
    MaxHoldIgnored,
    /// The store extends a fixed lease whenever the client polls its claim.
    PollExtendsFixedLease,
    /// A dropped acquire stays in the renewals.
    CancelLeaks,
    /// A dropped guard stays in the renewals.
    DropLeaks,
    /// A withdrawal leaves no mark for a claim that is still on its way.
    WithdrawalLeavesNoMark,
    /// A guard is believed in until its release was answered.
    ReleaseEndsNothing,
    /// A claim is renewed until its release was answered.
    ReleaseRacesRenewal,
    /// Closing forgets what is held.
    CloseForgets,
    /// An upgrade does not wait for the other readers.
    UpgradeDoesNotWait,
    /// An adopter goes on with the giver's secret, and so does the next.
    AdoptKeepsTheSecret,
    /// An owner joins a hold that it has lost, or that it is giving back.
    JoinsADyingHold,
    /// A multi-lock acquires in the caller's order.
    MultiInCallersOrder,
    /// A multi-lock goes on without the part that is busy.
    MultiSkipsABusyPart,
    /// A latch waiter that lost its place thinks that it has passed.
    LatchPassesWhenGone,
    /// When a latch ends, the store forgets the request that set it: a late copy sets the latch again.
    EndedLatchIsForgotten,
    /// A count-down takes whichever latch is set, not the one that its caller saw.
    CountKnowsNoRound,
    /// `set` retries without a limit, and a waiter claims a share even if the latch is open.
    SetHasNoEnd,
    /// A job that was done too soon leaves no tail.
    JobLeavesNoTail,
    /// A job whose process dies forgets its `at_least`.
    CrashForgetsAtLeast,
    /// A quorum keeps what a minority of its members granted.
    QuorumKeepsAMinority,
    /// A quorum is content with the smaller half of its members.
    HalfIsAMajority,
    /// A quorum asks its members again under an id that it has released there.
    QuorumReusesIds,
    /// A quorum takes no number but the one that its own clock proposed.
    QuorumTakesOnlyItsOwnNumber,
}

/// Which bug is planted; more than any of them for none.
#[cfg(feature = "mutants")]
static PLANTED: std::sync::atomic::AtomicU8 = std::sync::atomic::AtomicU8::new(u8::MAX);

#[cfg(feature = "mutants")]
impl Mutant {
    /// Runs `work` in a process that has this bug. One at a time: the bug is in every thread.
    pub fn plant<T>(self, work: impl FnOnce() -> T) -> T {
        struct Weed;
        impl Drop for Weed {
            fn drop(&mut self) {
                PLANTED.store(u8::MAX, std::sync::atomic::Ordering::Relaxed);
            }
        }
        PLANTED.store(self as u8, std::sync::atomic::Ordering::Relaxed);
        let _weed = Weed;
        work()
    }

    pub(crate) fn lives(self) -> bool {
        PLANTED.load(std::sync::atomic::Ordering::Relaxed) == self as u8
    }
}

#[cfg(not(feature = "mutants"))]
impl Mutant {
    pub(crate) const fn lives(self) -> bool {
        false
    }
}
