-- Heads and claims as they are in memory, and as they are written.
local pack = cmsgpack.pack

-- A number in a column.
local function column(text, at)
  return (numbers_at('>I8', text, at))
end

local function maybe(number)
  return number < NEVER and number
end

-- What is stored as it came: an inbox, and MessagePack.
local function read_rest(text)
  return sub(text, 1, 16), cmsgpack.unpack(sub(text, 17))
end

local function read_claim(front, rest, more)
  local c = { id = sub(front, 1, 16), lease = maybe(column(front, 18)), limit = column(front, 34),
    token_above = column(more, 1), leave = byte(more, 17) == LEAVES }
  c.most, c.least, c.barging, c.keep, c.min_age, c.again = cmsgpack.unpack(sub(more, 18))
  c.inbox, c.patience, c.lock_delay, c.label, c.value, c.count = read_rest(rest)
  return c
end

local function head_of(limit, effective, quiet_until, last, last_until)
  return { limit = limit, effective = effective, quiet_until = quiet_until, last = last,
    last_until = last_until, held = 0, claims = 0, waiting = 0 }
end

local function row_of(id, expires, lease, seat, token, held, wanted, least, since, inbox, patience, lock_delay, label,
    value, count, given, asked)
  return { id = id, expires = expires, lease = lease, seat = seat, token = token, held = held, wanted = wanted,
    least = least, since = since, patience = patience, lock_delay = lock_delay, inbox = inbox, label = label,
    value = value, count = count, given = given, asked = asked }
end

-- A plain claim that starts at `at`, and what follows its seat.
local function read_plain(text, at, token, held, rest)
  local lease, units, _, expires, since, seat = numbers_at('>I8I8I8I8I8I8', text, at + 17)
  return row_of(sub(text, at, at + 15), maybe(expires), maybe(lease), seat, token, held and units or 0, units, units,
    since, read_rest(rest))
end

local function read_other(id, text)
  local used, expires, lease, seat, token, held, wanted, least, since = cmsgpack.unpack_limit(text, 8, 0)
  return row_of(id, expires, lease, seat, token, held, wanted, least, since, read_rest(sub(text, used + 1)))
end

local function rest_of(r)
  return r.inbox .. pack(r.patience, r.lock_delay, r.label, r.value, r.count, r.given, r.asked)
end

-- Up to its seat, as far as the limit goes; nothing if it is not plain.
local function write_plain(r, limit)
  if r.lock_delay > 0 or r.wanted ~= r.least or r.wanted > limit then
    return
  end
  return r.id .. columns('>BI8I8I8I8I8I8', r.wanted == limit and WHOLE or SOME, r.lease or NEVER, r.wanted, limit,
    r.expires or NEVER, r.since, r.seat)
end

local function write_other(r)
  return pack(r.expires, r.lease, r.seat, r.token, r.held, r.wanted, r.least, r.since) .. rest_of(r)
end

local function member_text(r, limit)
  local plain = r.held == 0 and write_plain(r, limit)
  return plain and plain .. rest_of(r) or r.id .. string.char(OTHER) .. write_other(r)
end

local function lock_text(head, r)
  local is_plain = r and r.held == r.wanted and head.effective == head.limit and head.last == 0
    and head.last_until == 0
  local plain = is_plain and write_plain(r, head.limit)
  if plain then
    return MARK .. plain .. columns('>I8I8', r.token, head.quiet_until) .. rest_of(r)
  end
  return MARK .. (r and r.id or string.rep('\0', 16)) .. string.char(OTHER)
    .. pack(head.limit, head.effective, head.quiet_until, head.last, head.last_until) .. (r and write_other(r) or '')
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
  if row.held == 0 then
    return row.expires + GRACE
  end
  -- A latch is kept until no copy of its request can arrive any more, so that it is found to be over and not set again.
  return frees_at(row) + (row.count and LATE or 0)
end
