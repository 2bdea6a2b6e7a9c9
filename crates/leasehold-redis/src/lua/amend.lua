-- amend: changes a claim, or its resource.
-- keys: the fence, the lock and the mark that refuses a copy of this: when it goes to an heir, of the heir's id (and
--   then that of its own), for a limit that of the request
-- arguments: the claim, in its three parts (see claim.lua); what to change: a word, its values; the heir in three
--   parts, if there is one; the secret,
--   the server's replication id
-- result: how the claim stands, what is left of its count, or why not
--@ clock
--@ format
local lock, asked, heir, kept = KEYS[2], ARGV[1], ARGV[5], ARGV[6]
local change, value, operation, token = cmsgpack.unpack(ARGV[4])
if change == 'owner' then
--@ numbers
--@ inherit
  if answer then
    return answer
  end
end
--@ row
--@ fence
--@ ledger
--@ settle
--@ rule
local asked = read_claim(asked, ARGV[2], ARGV[3])
local heir = change == 'owner' and read_claim(heir, kept, ARGV[7])
if not open_to_change(lock, call('MGET', lock)[1]) then
  return 'foreign'
end

if change == 'ask' then
  local row = head and holder(value)
  if not row or is_expired(row) or row.id == ownerless(row.seat) then
    return 'gone'
  end
  row.asked = true
  put(row)
  -- Also when it was asked before: it may not have heard.
  told[1] = row.inbox
  return close('done')
end

if change == 'limit' then
  local mark = call('GET', KEYS[3])
  if mark and tonumber(mark) > now then
    -- A copy of a resize that was made or withdrawn: a later one may have been made since.
    return 'done'
  end
  -- Nothing is granted before the new limit is known.
  local refused = enter(asked)
  if refused then
    return refused
  end
  head.effective = value
  refuse(asked.id)
  catch_up()
  return close('done')
end

if not head then
  return 'gone'
end

-- Counts the latch with a token down, once per operation.
if change == 'give' then
  local row = holder(token)
  if not row or is_expired(row) then
    return 'gone'
  elseif not row.count then
    return 'uncounted'
  end
  for i = 1, #row.given, 8 do
    if sub(row.given, i, i + 7) == operation then
      return say('left', row.count)
    end
  end
  local remaining = math.max(row.count - value, 0)
  if remaining > 0 then
    row.count, row.given = remaining, row.given .. operation
    put(row)
    return close(say('left', remaining))
  end
  refuse_copies(row)
  bury(row)
  catch_up()
  return close(say('left', 0))
end

-- Refuses what cannot be done before anything is written.
local function check()
  local row = row_by_id(asked.id)
  if not row or is_expired(row) then
    return
  end
  -- After the limit went down a holder may have more than it; it may keep that, or give back some.
  local most = math.max(head.effective, row.held)
  if change == 'units' and (value == 0 or value > most) then
    return say('units', most)
  elseif change == 'owner' and heir.id ~= row.id and row_by_id(heir.id) then
    return 'heir'
  end
  local grows = change == 'units' and value > row.held
  local wait = grows and wait_for(asked.token_above) or change == 'owner' and wait_for(row.token) or 0
  if wait > 0 then
    return say('ahead', wait)
  end
end

-- Grows or shrinks in place.
local function resize(row)
  if waits(row) then
    head.waiting = head.waiting - 1
  end
  head.held = head.held - math.max(row.held - value, 0)
  row.held = math.min(row.held, value)
  row.wanted, row.least = value, value
  -- Who holds already goes before all who wait: they may be waiting for it.
  if waits(row) and fits(row) then
    grant(row, number(asked.token_above))
  end
  local gives_up = waits(row) and asked.leave
  if gives_up then
    row.wanted, row.least = row.held, row.held
  end
  if waits(row) then
    head.waiting = head.waiting + 1
  end
  put(row)
  return gives_up and 'busy' or standing(row.id, false)
end

local function hand_over(row)
  remove(row)
  if heir.id ~= row.id and value > 0 then
    -- A copy of its claim may still be on the way.
    call('SET', KEYS[4], format('%d', now + value), 'PXAT', format('%d', now + value))
  end
  if not row.count then
    -- The heir counts its own changes.
    row.given = ''
  end
  row.id, row.asked, row.inbox, row.label = heir.id, false, heir.inbox, heir.label
  row.token = number(row.token)
  extend(row, heir.lease)
  note_end(frees_at(row))
  put(row)
  return granted(row, true)
end

-- Turns a hold into one that nobody owns and that ends by itself.
local function leave_tail(row)
  if value == 0 then
    bury(row)
    return 'done'
  end
  remove(row)
  if waits(row) then
    head.waiting = head.waiting - 1
  end
  row.wanted, row.least = row.held, row.held
  row.id, row.expires, row.lock_delay = ownerless(row.seat), now + value, 0
  note_end(frees_at(row))
  remember(asked, row)
  put(row)
  return 'done'
end

-- Whether a number of 8 bytes is above another. Not as strings: those are compared by the server's locale.
local function is_above(one, other)
  for i = 1, 8 do
    local a, b = byte(one, i), byte(other, i)
    if a ~= b then
      return a > b
    end
  end
  return false
end

-- Whether this change, or a later one, was made already; if not it is from now on.
local function was_made(row)
  if row.count then
    -- The numbers that a latch remembers are those of what it was given.
    return false
  end
  if #row.given == 8 and not is_above(operation, row.given) then
    return true
  end
  row.given = operation
  return false
end

local function apply(row)
  if (change == 'units' or change == 'value') and was_made(row) then
    return standing(row.id, false)
  end
  if change == 'units' then
    return resize(row)
  elseif change == 'owner' then
    return hand_over(row)
  elseif change == 'tail' then
    return leave_tail(row)
  end
  row.value = value
  put(row)
  return granted(row, false)
end

local function amend()
  local mark = heir and call('GET', KEYS[3])
  if mark and tonumber(mark) > now then
    -- Its adopter gave up before this arrived: nobody would look after it.
    return 'gone'
  end
  local row = row_by_id(asked.id)
  if row then
    -- Only what holds can be amended, and what is over does not come back.
    if row.held == 0 or is_expired(row) then
      return 'gone'
    end
    keep_from(row.seat)
    return apply(row)
  end
  -- A hand-over that was carried out before: its reply was lost.
  local adopted = heir and row_by_id(heir.id)
  if adopted and adopted.held > 0 and not is_expired(adopted) then
    return granted(adopted, false)
  end
  return 'gone'
end

local refused = check()
if refused then
  return refused
end
catch_up()
local answer = amend()
catch_up()
return close(answer)
