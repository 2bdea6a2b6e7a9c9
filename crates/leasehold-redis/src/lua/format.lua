-- How claims are written down. Everything about a lock is in one key:
--
-- * a string while it has at most one claim: version, head, claim, one after the other in MessagePack;
-- * with the second claim a sorted set whose members all have the score 0, so that it is a map in the order of
--   its bytes: `h` head; `r` id claim; `q` place in the queue, id; `e` when a holder's units come free, id.
--
-- Absent is `false`. Numbers stay below 2^53, what may be larger (inboxes, operations) is kept as a string.
local VERSION = 1
local NEVER = 9007199254740992
-- For how long a lock is kept after its last waiter was due: one that is late keeps its place.
local GRACE = 10000

local function read_claim(text)
  local c = {}
  c.id, c.limit, c.most, c.least, c.leave, c.barging, c.lease, c.patience, c.lock_delay, c.token_above, c.inbox,
    c.label, c.value, c.count, c.keep, c.min_age, c.again = cmsgpack.unpack(text)
  return c
end

local function head_of(limit, effective, quiet_until, last, last_until)
  return { limit = limit, effective = effective, quiet_until = quiet_until, last = last,
    last_until = last_until, held = 0, claims = 0, waiting = 0, lasts = 0, patience = 0 }
end

local function row_of(id, seat, token, held, wanted, least, since, lease, patience, expires, lock_delay, inbox, label,
    value, count, given, asked)
  return { id = id, seat = seat, token = token, held = held, wanted = wanted, least = least, since = since,
    lease = lease, patience = patience, expires = expires, lock_delay = lock_delay, inbox = inbox, label = label,
    value = value, count = count, given = given, asked = asked }
end

local function write_row(r)
  return cmsgpack.pack(r.seat, r.token, r.held, r.wanted, r.least, r.since, r.lease, r.patience, r.expires,
    r.lock_delay, r.inbox, r.label, r.value, r.count, r.given, r.asked)
end

local function waits(row)
  return row.held < row.wanted
end

local function frees_at(row)
  return row.expires and row.expires + row.lock_delay or NEVER
end

-- When a lock may be forgotten as far as this claim goes.
local function lasts_until(row)
  if not row.expires then
    return NEVER
  end
  return row.held > 0 and frees_at(row) or row.expires + GRACE
end

-- A lock with at most one claim, as it is written.
local function lock_text(head, row)
  local text = cmsgpack.pack(VERSION, head.limit, head.effective, head.quiet_until, head.last, head.last_until)
  return row and text .. cmsgpack.pack(row.id) .. write_row(row) or text
end

-- Writes it so that it ends with what is in it. With 'NX' only where nothing is: then false when something was.
local function write_lock(key, text, head, row, ...)
  local ends = math.max(head.last_until, row and lasts_until(row) or 0)
  if head.effective ~= head.limit or ends >= NEVER then
    return call('SET', key, text, ...)
  end
  return call('SET', key, text, 'PXAT', ends, ...)
end
