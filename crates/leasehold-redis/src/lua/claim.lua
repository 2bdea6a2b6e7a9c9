-- claim: asks for units of a lock.
-- keys: the fence, the lock, the mark that refuses this claim's id
-- arguments: the claim up to its limit, as it is written; what of it is stored as it is; what else is asked; the secret,
--   the server's replication id
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
if not open_to_change(lock, alone) then
  return 'foreign'
end
local own = head and head.limit == asked.limit and row_by_id(asked.id)
if own then
  -- Asked again: before anything is buried, or an expired waiter would lose the place that it revives. A latch that is set
  -- belongs to nobody and lives as long as it was set for.
  return look_after(own, asked, not (own.count and own.held > 0))
end
local refused = enter(asked)
if refused then
  return refused
end
if asked.least > head.effective then
  return say('lowered', head.effective)
end
if asked.keep then
  local left = born() + asked.min_age - now
  if left > 0 then
    return say('young', left)
  end
end
catch_up()

local row = row_of(asked.id, false, asked.lease, 0, 0, 0, asked.most, asked.least, now, asked.inbox,
  asked.patience, asked.lock_delay, asked.label, asked.value, asked.count, '', false)
-- Only a lowered limit can leave claims that cannot fit, and need not be waited for.
local is_queued = head.waiting > 0 and (head.effective >= head.limit or front(0))
local holds = (asked.barging or not is_queued) and fits(row)
if not holds and asked.leave then
  return close('busy')
end
-- A quorum's tokens are not the fence's.
local wait = holds and asked.keep and 0 or wait_for(asked.token_above)
if wait > 0 then
  return close(say('ahead', wait))
end
if holds then
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
  extend(row, row.lease)
  head.claims = head.claims + 1
  note_end(frees_at(row))
  remember(asked, row)
  put(row)
  return close(granted(row, true))
end
row.seat = number(asked.token_above)
extend(row, row.lease)
head.claims, head.waiting = head.claims + 1, head.waiting + 1
put(row)
return close(waiting(row, true))
