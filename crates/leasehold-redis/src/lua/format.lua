-- How claims are written down. Everything about a lock is in one key:
--
-- * a string while it has at most one claim: VERSION, that claim, and what is known about the lock;
-- * else a sorted set. First, with the score -inf, the same string, in which the only holder is; where several hold,
--   nobody. Beside it `n`, what is known about the set as a whole. Then two members of the same score for each other
--   claim: its id, and the claim. So a claim is found by its id, by its place, or at the front.
--
-- A claim begins with its id and its kind. Plain ones, as nearly all are, have columns of 8 bytes, so that the short
-- ways need not take them apart. Short, as the server hashes every string that a script touches. It starts here in a
-- member, and one byte later in a string:
--
--   1 id   17 kind   18 lease   26 units   34 limit   42 expires   50 since   58 seat   66 token   74 quiet until
--
-- The last two are in strings only: in a set plain ones wait. The rest, from 66 or 83, is as it came. A claim is plain
-- when it has or wants just so many units, with no lock delay, of a lock whose limit nobody changed and of which no
-- quorum must know more. Any other is MessagePack.
--
-- Scores, in their order: of who holds, when its units come free, less NEVER (so at most 0); of who holds and wants
-- more, also its seat as a fraction (`g` behind its id); of who waits, its seat.
--
-- Absent is `false`, or NEVER in a column. Numbers stay below 2^53, what may be larger (operations) is a string.
local VERSION, MARK = 3, '\3'
local NEVER = 9007199254740992
-- Kinds: plain and all that there is, plain and some of it, any other.
local WHOLE, SOME, OTHER = 119, 115, 111
-- What else is asked begins with a number, the patience, and whether it leaves where it would have to wait: `l`.
local LEAVES = 108
-- For how long a lock is kept after its last waiter was due: one that is late keeps its place.
local GRACE = 10000
-- A lock with several claims is kept this much longer than its last one, so that not every renewal moves its end.
local SPARE = 5000
-- For how long late copies of a request are refused: see `LATE` of the rule.
local LATE = 60000
-- The first byte of what is known about a set: `n`.
local ABOUT = 110
-- How a claim stands, as an answer: a word, then numbers of eight bytes.
local STANDS = '>c7i8i8i8i8i8'
-- How far numbers may be ahead of the clock, in microseconds: see fence.lua.
local BOUND = 60000000
local byte, sub, format, columns, numbers_at = string.byte, string.sub, string.format, struct.pack, struct.unpack
-- What the caller's server was called when the caller connected: see sure.lua. Before that the secret with which messages
-- are proven.
local here, secret = ' ' .. ARGV[#ARGV], ARGV[#ARGV - 1]
