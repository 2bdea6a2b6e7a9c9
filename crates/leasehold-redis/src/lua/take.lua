-- The short ways of a claim, before the rule is even loaded: nearly all claims end here. Made of `lock` and `mark`,
-- `asked` and `stored`, and of numbers.lua. Leaves `answer`, nil where there may be more to do; and what was found:
-- `alone`, the text under the lock's name if it is one, and `marked`.
local answer, alone, marked
local id, limit, most, least, leave, _, lease, token_above, keep = cmsgpack.unpack(asked)
local _, patience, lock_delay = unpack_some(stored, 2, 0)
local is_plain = not keep and most <= limit
if is_plain and call('EXISTS', lock, mark) == 0 then
--@ sure
  if is_sure then
    last = math.max(last + 1, token_above + 1, micros)
    local expires = lease and now + lease
    local frees = lease and expires + lock_delay or NEVER
    local text = pack(VERSION, limit, limit, frees, 0, 0, id, expires, lease, last, last, most, most, most, now)
      .. stored
    if lease then
      call('SET', lock, text, 'PXAT', string.format('%d', frees))
    else
      call('SET', lock, text)
    end
--@ draw
    answer = struct.pack(STANDS, 'granted', last, last, most, lease or -1, 0)
  end
else
  -- No error where the lock is no string: then it is nothing, or several claims.
  local there = call('MGET', lock, mark)
  alone, marked = there[1], there[2]
  if is_plain and not marked then
--@ behind
    answer = behind()
  end
end
