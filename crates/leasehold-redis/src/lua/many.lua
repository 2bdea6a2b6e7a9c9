-- many: gives back and asks for many locks, each by its short way.
-- keys: the fence, the lock of each release, the lock of each claim and the mark that refuses its id
-- arguments: how many releases, the id of each; each claim, in its three parts; the secret, the server's
--   replication id
-- result: what was found and how it stands; nil for who must ask again alone, because its way is longer
--@ clock
--@ format
--@ numbers
local releases = tonumber(ARGV[1])
local claims = (#ARGV - 3 - releases) / 3
local answers = {}
spare = releases + claims - 1
for i = 1, releases do
  local lock, id = KEYS[1 + i], ARGV[1 + i]
--@ give
  answers[i] = answer or false
end
for i = releases + 1, releases + claims do
  local at, part = 2 * i - releases, 3 * i - 2 * releases - 1
  local lock, mark, asked, stored, more = KEYS[at], KEYS[at + 1], ARGV[part], ARGV[part + 1], ARGV[part + 2]
--@ take
  answers[i] = answer or false
end
return answers
