-- The short way of a claim to a lock that one holds, so that too little is left: it goes to the end of the queue, or
-- leaves. No answer where there may be more to do.
local function behind()
  local text, about, front = alone, nil, nil
  if not alone then
    local first = redis.pcall('ZRANGE', lock, '0', '3')
    text, about, front = first[1], first[2], first[4]
    if not front or string.byte(about) ~= ABOUT then
      return
    end
  end
  if string.byte(text) ~= VERSION then
    return
  end
  local _, _, same, effective, quiet_until, _, last_until, owner, expires, _, _, _, held, wanted, _, _, _, delay =
    unpack_some(text, 17, 0)
  if not owner or owner == id or same ~= limit or effective ~= limit or last_until > now or not expires
      or now >= quiet_until or held == 0 or held < wanted or limit - held >= least then
    return
  end
  local lasts = now + patience + GRACE
  if not alone then
    -- Nobody at the front fits, or it would hold; but who is late there is to be buried.
    local _, due = unpack_some(front, 1, 16)
    local _, kept, longest = unpack_some(about, 2, 1)
    if due <= now or lasts > kept or patience > longest then
      return
    end
  end
  if leave then
    return (alone or not call('ZRANK', lock, id)) and 'busy' or nil
  end
--@ read
  if not last then
    return
  end
  local seat = math.max(last + 1, token_above + 1, micros)
  local place = string.format('%016d', seat)
  local row = id .. pack(now + patience, lease, seat, 0, 0, most, least, now) .. stored
  if alone then
    lasts = math.max(lasts, expires + delay) + SPARE
    about = string.char(ABOUT) .. pack(lasts, patience, lasts, 0, 0, 0)
    call('DEL', lock)
    call('ZADD', lock, '-inf', text, '-inf', about, place, id, place, row)
    call('PEXPIREAT', lock, string.format('%d', lasts))
  elseif call('ZADD', lock, 'NX', place, id, place, row) < 2 then
    -- It waits already: asked again.
    call('ZREM', lock, row)
    return
  end
  -- A seat is no token: it need not be above what was forgotten, so nobody looks whether something was.
  last = seat
--@ draw
  local before = math.min((call('ZCARD', lock) - 2) / 2 - 1, 64)
  local look_in = before > 0 and math.floor(patience / 3) or math.min(quiet_until - now, 1000)
  return struct.pack(STANDS, 'waiting', seat, before, look_in, 0, patience)
end
