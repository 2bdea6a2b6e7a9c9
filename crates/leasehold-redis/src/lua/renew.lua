-- renew: extends the leases of many claims.
-- keys: the fence, then the lock of each claim
-- arguments: of each claim its id, its lease, and for how long a quorum remembers its token
-- result: how each of them stands
--@ clock
--@ format
--@ fence
--@ ledger
--@ rule
local answers = {}
for i, argument in ipairs(ARGV) do
  local asked = {}
  asked.id, asked.lease, asked.keep = cmsgpack.unpack(argument)
  -- Where something else is by now, the claim is gone.
  answers[i] = open(KEYS[i + 1]) and renew(asked) or { 'gone' }
end
return answers
