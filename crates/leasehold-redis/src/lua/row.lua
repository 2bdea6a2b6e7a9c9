-- Heads and claims as they are in memory, and as they are written.
local function read_claim(text, fixed)
  local c = {}
  c.id, c.limit, c.most, c.least, c.leave, c.barging, c.lease, c.token_above, c.keep, c.min_age, c.again =
    cmsgpack.unpack(text)
  c.patience, c.lock_delay, c.inbox, c.label, c.value, c.count = cmsgpack.unpack(fixed)
  return c
end

local function head_of(limit, effective, quiet_until, last, last_until)
  return { limit = limit, effective = effective, quiet_until = quiet_until, last = last,
    last_until = last_until, held = 0, claims = 0, waiting = 0 }
end

local function row_of(id, expires, lease, seat, token, held, wanted, least, since, patience, lock_delay, inbox, label,
    value, count, given, asked)
  return { id = id, expires = expires, lease = lease, seat = seat, token = token, held = held, wanted = wanted,
    least = least, since = since, patience = patience, lock_delay = lock_delay, inbox = inbox, label = label,
    value = value, count = count, given = given, asked = asked }
end

-- What a claim that arrives is made of: the first part changes, the second is stored as it came.
local function write_row(r)
  return pack(r.expires, r.lease, r.seat, r.token, r.held, r.wanted, r.least, r.since, r.patience, r.lock_delay,
    r.inbox, r.label, r.value, r.count, r.given, r.asked)
end

local function lock_text(head, row)
  local text = pack(VERSION, head.limit, head.effective, head.quiet_until, head.last, head.last_until)
  return row and text .. pack(row.id) .. write_row(row) or text
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
