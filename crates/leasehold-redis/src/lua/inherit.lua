-- The short way of a hand-over, from who holds to an heir that differs in its name only. Made of `lock`, `asked`, `heir`
-- and `kept`, what is stored of the heir; of `value`, and of numbers.lua. Leaves `answer`, nil where there may be more to
-- do.
local answer
repeat
  local there = call('MGET', lock, KEYS[3])
  local alone, text, about = there[1], there[1], nil
  if not alone then
    local first = redis.pcall('ZRANGE', lock, '0', '3')
    local front = first[4]
    text, about = first[1], first[2]
    -- Who is late at the front is to be buried.
    if not front or byte(about) ~= ABOUT or byte(front, 17) == OTHER or numbers_at('>I8', front, 42) <= now then
      break
    end
  end
  local own, id = sub(asked, 1, 16), sub(heir, 1, 16)
  -- Of the same kind, lease, units and limit.
  if there[2] or byte(text) ~= VERSION or sub(text, 2, 17) ~= own or id == own or byte(text, 18) == OTHER
      or sub(text, 18, 42) ~= sub(heir, 17, 41) then
    break
  end
  local units, _, expires, _, seat, token, quiet_until = numbers_at('>I8I8I8I8I8I8I8', text, 27)
  local ends = now + numbers_at('>I8', heir, 18)
  if expires <= now or now >= quiet_until or ends < expires or ends >= NEVER
      or about and (ends > numbers_at('>I8', about, 2) or call('ZRANK', lock, id)) then
    break
  end
  local patience, _, _, is, count = cmsgpack.unpack(sub(text, 99))
  local same, _, _, to_be, counts = cmsgpack.unpack(sub(kept, 17))
  if patience ~= same or is ~= to_be or count or counts then
    break
  end
--@ sure
  if not is_sure or token > last and token >= micros + BOUND then
    break
  end
  last = math.max(last + 1, token + 1, micros)
  local becomes = MARK .. heir .. columns('>I8', ends) .. sub(text, 51, 66) .. columns('>I8I8', last, quiet_until)
    .. kept
  if alone then
    call('SET', lock, becomes, 'PXAT', format('%d', ends))
  else
    call('ZADD', lock, '-inf', becomes)
    call('ZREM', lock, text)
  end
  if value > 0 then
    -- A copy of its claim may still be on the way.
    call('SET', KEYS[4], format('%d', now + value), 'PXAT', format('%d', now + value))
  end
--@ draw
  answer = columns(STANDS, 'granted', seat, last, units, ends - now, 0)
until true
