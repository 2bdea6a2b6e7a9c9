//! What the number sources of both databases say alike.

/// Why a request for a token is refused that would move the source of numbers too far ahead of the server's clock.
pub const TOO_FAR_AHEAD: &str = "tokens would be more than 60 s ahead of the server's clock, which was perhaps set back: \
                                 set it right, or wait until it has caught up";
