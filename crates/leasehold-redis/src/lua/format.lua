-- How claims are written down, in MessagePack. Everything about a lock is in one key:
--
-- * a string while it has at most one claim: version, head, that claim;
-- * else a sorted set. First, with the score -inf, the same string, in which the only holder is; where several hold,
--   nobody. Beside it `n`, what is known about the set as a whole. Then two members of the same score for each other
--   claim: its id, and its id with the claim behind it. So a claim is found by its id, by its place, or at the front.
--
-- Scores, in their order: of who holds, when its units come free, less NEVER (so at most 0); of who holds and wants
-- more, also its seat as a fraction (`g` behind its id); of who waits, its seat.
--
-- Absent is `false`. Numbers stay below 2^53, what may be larger (inboxes, operations) is kept as a string.
local VERSION = 2
local NEVER = 9007199254740992
-- For how long a lock is kept after its last waiter was due: one that is late keeps its place.
local GRACE = 10000
-- A lock with several claims is kept this much longer than its last one, so that not every renewal moves its end.
local SPARE = 5000
-- The first byte of what is known about a set: `n`.
local ABOUT = 110
-- How a claim stands, as an answer: a word, then numbers of eight bytes.
local STANDS = '>c7i8i8i8i8i8'
local pack, unpack_some = cmsgpack.pack, cmsgpack.unpack_limit
