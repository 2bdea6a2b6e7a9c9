-- The short way of a release by the one who holds: who waits at the front gets it, and nobody else. No answer where
-- there may be more to do.
local function pass_on()
  local front, following = first[4], first[6]
  local fixed, due, lease, seat, _, _, wanted, least = unpack_some(front, 8, 16)
  local _, _, lock_delay, inbox = unpack_some(front, 3, fixed)
  local _, kept = unpack_some(about, 1, 1)
  local units, frees = math.min(wanted, limit), due + lock_delay
  if now >= quiet_until or due <= now or least > limit or frees > kept then
    return
  end
  -- Nothing is left for who comes after, and it is not late, or it would be buried.
  if following and (units < limit or select(2, unpack_some(following, 1, 16)) <= now) then
    return
  end
--@ sure
  if not is_sure then
    return
  end
  last = math.max(last + 1, micros)
  local is = pack(VERSION, limit, limit, math.min(quiet_until, frees), last_token, last_until, first[3], due, lease,
    seat, last, units, units, units, now) .. string.sub(front, fixed + 1)
  -- The first write frees memory: all of it may be in use.
  if following then
    call('ZREM', lock, text, first[3], front)
    call('ZADD', lock, '-inf', is)
  else
    call('DEL', lock)
    call('SET', lock, is, 'PXAT', string.format('%d', frees))
  end
--@ draw
  call('PUBLISH', 'leasehold.inbox:' .. inbox, string.format('%s %d %d %d %s', inbox, seat, last, units, lock))
  return 'held'
end
