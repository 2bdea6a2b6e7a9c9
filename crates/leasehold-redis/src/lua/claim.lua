-- claim: asks for units of a lock.
-- keys: the fence, the lock, the mark that refuses this claim's id
-- arguments: the claim up to its limit, as it is written; what of it is stored as it is; what else is asked; the
--   server's replication id
-- result: how it stands
--@ clock
--@ format
--@ numbers
local lock, mark, asked, stored, more = KEYS[2], KEYS[3], ARGV[1], ARGV[2], ARGV[3]
--@ take
if answer then
  return answer
end
--@ row
--@ fence
--@ ledger
--@ settle
--@ rule
local asked = read_claim(asked, stored, more)
if marked and tonumber(marked) > now then
  return 'gone'
end
if not open(lock, alone) then
  return 'foreign'
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
    return say('young', left)
  end
end
catch_up()
local latch = own and row_by_id(asked.id)
if latch then
  -- A latch is everybody's, so its id is too: the value tells who set it. Nobody prolongs it.
  return close(latch.value == asked.value and granted(latch, false) or 'busy')
end

local row = row_of(asked.id, false, asked.lease, 0, 0, 0, asked.most, asked.least, now, asked.inbox,
  asked.patience, asked.lock_delay, asked.label, asked.value, asked.count, '', false)
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
  return close('busy')
end
row.seat = number(asked.token_above)
prolong(row)
head.claims, head.waiting = head.claims + 1, head.waiting + 1
put(row)
return close(waiting(row, true))
