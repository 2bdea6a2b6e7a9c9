-- The short ways of a release, before the rule is even loaded: nearly all releases end here. Made of `lock` and `id`,
-- and of numbers.lua. Leaves `answer`, nil where there may be more to do; and what was found: `alone`, the text under
-- the lock's name if it is one.
local answer
-- No error where it is no string: then it is nothing, or several claims.
local alone = call('MGET', lock)[1]
local first = alone and { alone } or redis.pcall('ZRANGE', lock, '0', '5')
local text, about = first[1], first[2]
if text and string.byte(text) == VERSION and (alone or about and string.byte(about) == ABOUT) then
  local _, _, limit, effective, quiet_until, last_token, last_until, owner, expires, _, _, _, held =
    unpack_some(text, 12, 0)
  if owner == id and effective == limit and last_until <= now and held > 0 and (not expires or expires > now) then
    if alone then
      -- The only claim, and nothing else to remember.
      call('DEL', lock)
      answer = 'held'
    else
--@ pass
      answer = pass_on()
    end
  end
end
