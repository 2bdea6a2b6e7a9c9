-- claim: asks for units of a lock.
-- keys: the fence, the lock, the mark that refuses this claim's id
-- arguments: the claim, and what of it is stored as it is
-- result: how it stands
--@ clock
--@ format
local id, limit, most, least, leave, barging, lease, token_above, keep = cmsgpack.unpack(ARGV[1])
local _, patience, lock_delay = unpack_some(ARGV[2], 2, 0)
local there = call('MGET', KEYS[1], KEYS[2], KEYS[3])
local fence, alone = there[1], there[2]
-- What is no string is nothing, several claims, or an error.
local members = alone and 0 or redis.pcall('ZCARD', KEYS[2])
local is_plain = fence and not there[3] and not keep and most <= limit and type(members) == 'number'

if is_plain and not alone and members == 0
    and string.find(call('INFO', 'replication'), 'master_replid:' .. string.sub(fence, -40), 1, true) then
  -- Free, and nothing was forgotten: most claims end here, so it is written out.
  local token = math.max(string.sub(fence, 1, 16) + 1, token_above + 1, micros)
  local expires = lease and now + lease
  local frees = lease and expires + lock_delay or NEVER
  local text = pack(VERSION, limit, limit, frees, 0, 0, id, expires, lease, token, token, most, most, most, now)
    .. ARGV[2]
  if lease then
    call('SET', KEYS[2], text, 'PXAT', string.format('%d', frees))
  else
    call('SET', KEYS[2], text)
  end
  call('SET', KEYS[1], string.format('%016d', token) .. string.sub(fence, 17))
  return { 'granted', token, token, most, lease or -1, 0 }
end

if is_plain and not leave and (alone or members > 0) then
  -- Held by one, and not for us: most other claims end here. Whatever is not quite so is left to the rule.
  local first = alone and { alone } or call('ZRANGE', KEYS[2], '0', '3')
  local text, about, front = first[1], first[2], first[4]
  local is_ours = string.byte(text) == VERSION and (alone or front and string.byte(about) == 110)
  local _, _, same, effective, quiet_until, _, last_until, owner, expires, _, _, _, held, wanted, _, _, _, delay =
    unpack_some(is_ours and text or '', 17, 0)
  if owner and owner ~= id and same == limit and effective == limit and last_until <= now and expires
      and now < quiet_until and held > 0 and held == wanted and limit - held < least then
    local is_next, lasts = true, now + patience + GRACE
    if alone then
      lasts = math.max(lasts, expires + delay) + SPARE
      about = 'n' .. pack(lasts, patience, lasts, 0, 0, 0)
    else
      -- Who stands at the front is to be buried when it is late.
      local _, due, _, _, _, _, _, needs = unpack_some(front, 7, 16)
      local _, kept, longest = unpack_some(about, 2, 1)
      is_next = due > now and limit - held < needs and lasts <= kept and patience <= longest
    end
    local seat = math.max(string.sub(fence, 1, 16) + 1, token_above + 1, micros)
    local place = string.format('%016d', seat)
    local row = id .. pack(now + patience, lease, seat, 0, 0, most, least, now) .. ARGV[2]
    if alone then
      call('DEL', KEYS[2])
      call('ZADD', KEYS[2], '-inf', text, '-inf', about, place, id, place, row)
      call('PEXPIREAT', KEYS[2], string.format('%d', lasts))
    elseif is_next and call('ZADD', KEYS[2], 'NX', place, id, place, row) < 2 then
      -- It waits already: asked again.
      call('ZREM', KEYS[2], row)
      is_next = false
    end
    if is_next then
      -- A seat is no token: it need not be above what was forgotten, so nobody looks whether something was.
      call('SET', KEYS[1], place .. string.sub(fence, 17))
      local before = alone and 0 or math.min((members - 2) / 2, 64)
      local look_in = before > 0 and math.floor(patience / 3) or math.min(quiet_until - now, 1000)
      return { 'waiting', seat, before, look_in, 0, patience }
    end
  end
end
--@ row
--@ fence
--@ ledger
--@ settle
--@ rule
local asked = read_claim(ARGV[1], ARGV[2])
if there[3] and tonumber(there[3]) > now then
  return { 'gone' }
end
if not open(KEYS[2], alone) then
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

local row = row_of(asked.id, false, asked.lease, 0, 0, 0, asked.most, asked.least, now, asked.patience,
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
