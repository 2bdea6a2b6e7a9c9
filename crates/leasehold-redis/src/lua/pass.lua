-- The short way of a release by the one who holds: who waits at the front gets it, and nobody else. No answer where
-- there may be more to do.
repeat
  local about, front, following = first[2], first[4], first[6]
  if not front or byte(about) ~= ABOUT or byte(front, 17) ~= WHOLE or following and byte(following, 17) == OTHER then
    break
  end
  local units, _, due, _, seat = numbers_at('>I8I8I8I8I8', front, 26)
  local quiet_until = numbers_at('>I8', text, 75)
  if now >= quiet_until or due <= now or due > numbers_at('>I8', about, 2) then
    break
  end
  -- Who comes after is not late, or it would be buried.
  if following and numbers_at('>I8', following, 42) <= now then
    break
  end
--@ sure
  if not is_sure then
    break
  end
  last = math.max(last + 1, micros)
  local is = MARK .. sub(front, 1, 49) .. columns('>I8I8I8I8', now, seat, last, math.min(quiet_until, due))
    .. sub(front, 66)
  -- The first write frees memory, or changes nothing: all of it may be in use.
  if following then
    call('ZREM', lock, text, first[3], front)
    call('ZADD', lock, '-inf', is)
  else
    call('PERSIST', KEYS[1])
    -- Over what is there: where a slot is being moved, what was deleted could not be written again.
    call('SET', lock, is, 'PXAT', format('%d', due))
  end
--@ draw
  local inbox = sub(front, 66, 81)
  local said = inbox .. format(' %d %d %d ', seat, last, units) .. lock
  call('PUBLISH', 'leasehold.inbox:' .. inbox, redis.sha1hex(secret .. said .. secret) .. ' ' .. said)
  answer = 'held'
until true
