-- The short way of a claim to a lock that one holds, so that too little is left: it goes to the end of the queue, or
-- leaves. No answer where there may be more to do.
repeat
  local text, about, front, id = alone, nil, nil, sub(asked, 1, 16)
  if not alone then
    local first = redis.pcall('ZRANGE', lock, '0', '3')
    text, about, front = first[1], first[2], first[4]
    if not front or byte(about) ~= ABOUT or byte(front, 17) == OTHER then
      break
    end
  end
  if byte(text) ~= VERSION or byte(text, 18) == OTHER or sub(text, 2, 17) == id then
    break
  end
  local held, limit, expires = numbers_at('>I8I8I8', text, 27)
  local units, same = numbers_at('>I8I8', asked, 26)
  local quiet_until = numbers_at('>I8', text, 75)
  if limit ~= same or limit - held >= units or expires == NEVER or now >= quiet_until then
    break
  end
  local above, patience = numbers_at('>I8I8', more, 1)
  local lasts = now + patience + GRACE
  if not alone then
    -- Nobody at the front fits, or it would hold; but who is late there is to be buried.
    local kept, longest = numbers_at('>I8I8', about, 2)
    if numbers_at('>I8', front, 42) <= now or lasts > kept or patience > longest then
      break
    end
  end
  if byte(more, 17) == LEAVES then
    answer = (alone or not call('ZRANK', lock, id)) and 'busy' or nil
    break
  end
--@ read
  if not last or above > last and above >= micros + BOUND then
    break
  end
  local seat = math.max(last + 1, above + 1, micros)
  local place = format('%d', seat)
  local row = asked .. columns('>I8I8I8', now + patience, now, seat) .. stored
  if alone then
    lasts = math.max(lasts, expires) + SPARE
    about = columns('>BI8I8', ABOUT, lasts, patience) .. cmsgpack.pack(lasts, 0, 0, 0)
    -- Not where a slot is being moved: the mark is not there, so such a claim is not begun.
    call('DEL', lock)
    call('ZADD', lock, '-inf', text, '-inf', about, place, id, place, row)
    call('PEXPIREAT', lock, format('%d', lasts))
  elseif call('ZADD', lock, 'NX', place, id, place, row) < 2 then
    -- It waits already: asked again.
    call('ZREM', lock, row)
    break
  end
  -- A seat is no token: it need not be above what was forgotten, so nobody looks whether something was.
  last = seat
--@ draw
  local before = math.min((call('ZCARD', lock) - 2) / 2 - 1, 64)
  local look_in = before > 0 and math.floor(patience / 3) or math.min(quiet_until - now, 1000)
  answer = columns(STANDS, 'waiting', seat, before, look_in, 0, patience)
until true
