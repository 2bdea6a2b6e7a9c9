-- claim: asks for units of a lock.
-- keys: the fence, the lock, the mark that refuses this claim's id
-- arguments: the claim
-- result: how it stands
--@ clock
local id, limit, most, _, _, _, lease, patience, lock_delay, token_above, inbox, label, value, count, keep =
  cmsgpack.unpack(ARGV[1])
local there = call('MGET', KEYS[1], KEYS[2], KEYS[3])
local fence, is_sound = there[1], false
if fence and not there[2] and not there[3] and not keep and most <= limit
    and string.find(call('INFO', 'replication'), 'master_replid:' .. string.sub(fence, -40), 1, true) then
  -- Free, as far as one can see, and nothing was forgotten: most claims end here, so it is written out.
  local token = math.max(tonumber(string.sub(fence, 1, 16)) + 1, token_above + 1, micros)
  local expires = lease and now + lease
  local text = cmsgpack.pack(1, limit, limit, lease and expires + lock_delay or 9007199254740992, 0, 0, id, token, token,
    most, most, most, now, lease, patience, expires, lock_delay, inbox, label, value, count, '', false)
  -- A lock with several claims is no string, and was not seen.
  local is_new = lease and call('SET', KEYS[2], text, 'NX', 'PXAT', expires + lock_delay)
    or not lease and call('SET', KEYS[2], text, 'NX')
  if is_new then
    call('SET', KEYS[1], string.format('%016d', token) .. string.sub(fence, 17))
    return { 'granted', token, token, most, lease or -1, 0 }
  end
  is_sound = true
end
--@ format
--@ fence
--@ ledger
--@ settle
--@ rule
local asked = read_claim(ARGV[1])
if is_sound then
  last, rest = tonumber(string.sub(fence, 1, 16)), string.sub(fence, 17)
end
if there[3] and tonumber(there[3]) > now then
  return { 'gone' }
end
if not open(KEYS[2], there[2]) then
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
  local left = born() + asked.min_age - now
  if left > 0 then
    return { 'young', left }
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
    if not asked.again or head.last ~= asked.token_above + 1 then
      head.last = math.max(head.last, asked.token_above) + 1
    end
    token = head.last
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
