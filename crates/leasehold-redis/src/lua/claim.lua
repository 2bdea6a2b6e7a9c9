-- claim: asks for units of a lock.
-- keys: the fence, the lock, the mark that refuses this claim's id
-- arguments: the claim
-- result: how it stands
--@ clock
--@ format
--@ fence
local asked = read_claim(ARGV[1])
local there = redis.call('MGET', KEYS[1], KEYS[2], KEYS[3])
if not there[2] and not there[3] and not asked.keep and asked.most <= asked.limit then
  -- Free, as far as one can see: a lock with several claims is no string.
  open_fence(there[1])
  local token = next_number(asked.token_above)
  local expires = asked.lease and now + asked.lease
  local row = row_of(asked.id, token, token, asked.most, asked.most, asked.most, now, asked.lease, asked.patience,
    expires, asked.lock_delay, asked.inbox, asked.label, asked.value, asked.count, '', false)
  local head = head_of(asked.limit, asked.limit, frees_at(row), 0, 0)
  if write_lock(KEYS[2], lock_text(head, row), head, row, 'NX') then
    last = token
    write_fence()
    return { 'granted', token, token, row.held, asked.lease or -1, 0 }
  end
end
--@ ledger
--@ rule
if there[3] and tonumber(there[3]) > now then
  return { 'gone' }
end
if not open(KEYS[2]) then
  return { 'foreign' }
end
local refused = enter(asked)
if refused then
  return refused
end
local own = row_by_id(asked.id)
if own and not (own.count and own.held > 0) then
  -- Asked again: before anything is buried, or an expired waiter would lose the place that it revives.
  return renew(asked)
end
if not own and asked.keep then
  if not last then
    open_fence(there[1])
  end
  if born + asked.min_age > now then
    return { 'young', born + asked.min_age - now }
  end
end
catch_up()
local latch = own and row_by_id(asked.id)
if latch then
  -- A latch is everybody's, so its id is too: the value tells who set it. Nobody prolongs it.
  return close(latch.value == asked.value and granted(latch, false) or { 'busy' })
end

local row = row_of(asked.id, 0, 0, 0, asked.most, asked.least, now, asked.lease, asked.patience, false,
  asked.lock_delay, asked.inbox, asked.label, asked.value, asked.count, '', false)
if (head.waiting == 0 or asked.barging) and fits(row) then
  local token
  if asked.keep then
    token = math.max(head.last, asked.token_above) + 1
    head.last = token
  else
    token = number(asked.token_above)
  end
  grant(row, token)
  row.seat = token
  prolong(row)
  head.claims = head.claims + 1
  note_end(frees_at(row))
  remember(asked, row)
  put(row)
  return close(granted(row, true))
elseif asked.leave then
  return close({ 'busy' })
end
row.seat = number(asked.token_above)
prolong(row)
head.claims, head.waiting = head.claims + 1, head.waiting + 1
put(row)
return close(waiting(row, true))
