-- The short ways of a claim, before the rule is even loaded: nearly all claims end here. Made of `lock` and `mark`,
-- of `asked`, `stored` and `more`, and of numbers.lua. Leaves `answer`, nil where there may be more to do; and what was
-- found: `alone`, the text under the lock's name if it is one, and `marked`.
local answer
local is_plain = byte(asked, 17) ~= OTHER
-- No error where the lock is no string: then it is nothing, or several claims.
local there = call('MGET', lock, mark, KEYS[1])
local alone, marked = there[1], there[2]
fence = fence or there[3]
if is_plain and not marked and not alone then
--@ sure
  local above = numbers_at('>I8', more, 1)
  if is_sure and (above <= last or above < micros + BOUND) then
    local token = math.max(last + 1, above + 1, micros)
    local lease = numbers_at('>I8', asked, 18)
    local ends = lease < NEVER and now + lease or NEVER
    local text = MARK .. asked .. columns('>I8I8I8I8I8', ends, now, token, token, ends) .. stored
    if lease == NEVER and call('SET', lock, text, 'NX')
        or lease < NEVER and call('SET', lock, text, 'PXAT', format('%d', ends), 'NX') then
      last = token
--@ draw
      answer = columns('>c5I8', 'taken', token)
    end
  end
end
if is_plain and not marked and not answer then
--@ behind
end
