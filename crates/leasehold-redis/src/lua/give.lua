-- The short ways of a release, before the rule is even loaded: nearly all releases end here. Made of `lock` and `id`,
-- and of numbers.lua. Leaves `answer`, nil where there may be more to do; and what was found: `alone`, the text under
-- the lock's name if it is one.
local answer
-- No error where it is no string: then it is nothing, or several claims.
local there = call('MGET', lock, KEYS[1])
local alone = there[1]
fence = fence or there[2]
local first = not alone and redis.pcall('ZRANGE', lock, '0', '5')
local text = alone or first[1]
if text and byte(text) == VERSION and sub(text, 2, 17) == id and byte(text, 18) ~= OTHER
    and numbers_at('>I8', text, 43) > now then
  if alone then
    -- The only claim, and nothing else to remember.
    call('DEL', lock)
    answer = 'held'
  else
--@ pass
  end
end
