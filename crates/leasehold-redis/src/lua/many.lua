-- many: gives back and asks for many locks, each by its short way.
-- keys: the fence, the lock of each release, the lock of each claim and the mark that refuses its id
-- arguments: how many releases, the id of each; each claim, and what of it is stored as it is
-- result: what was found and how it stands; nil for who must ask again alone, because its way is longer
--@ clock
--@ format
--@ numbers
local releases = tonumber(ARGV[1])
local claims = (#ARGV - 1 - releases) / 2
local answers = {}
spare = releases + claims - 1
for i = 1, releases do
  local lock, id = KEYS[1 + i], ARGV[1 + i]
--@ give
  answers[i] = answer or false
end
for i = releases + 1, releases + claims do
  local at = 2 * i - releases
  local lock, mark, asked, stored = KEYS[at], KEYS[at + 1], ARGV[at], ARGV[at + 1]
--@ take
  answers[i] = answer or false
end
return answers
