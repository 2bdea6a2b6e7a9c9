//! Planted bugs: mistakes that lock libraries have made, each of which a test must notice.
//!
//! The runtime asks `Mutant::UpgradeDoesNotWait.lives()` at the place where it could be wrong. Without the feature `mutants` the
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
    /// An upgrade does not wait for the other readers.
    UpgradeDoesNotWait,
    /// An adopter goes on with the giver's secret, and so does the next.
    AdoptKeepsTheSecret,
    /// A multi-lock acquires in the caller's order.
    MultiInCallersOrder,
    /// A multi-lock goes on without the part that is busy.
    MultiSkipsABusyPart,
    /// A latch waiter that lost its place thinks that it has passed.
    LatchPassesWhenGone,
    /// A quorum keeps what a minority of its members granted.
    QuorumKeepsAMinority,
    /// A quorum is content with the smaller half of its members.
    HalfIsAMajority,
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
