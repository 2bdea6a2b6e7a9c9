-- renew: extends the leases of many claims.
-- keys: the fence, then the lock of each claim
-- arguments: of each claim its id, its lease in 8 bytes (0: only how it stands is asked), and for how long a quorum
--   remembers its token
-- result: how each of them stands
--@ clock
--@ format
-- What is held must be extended even where memory is full. A server that has none left lets a script write if its
-- first write takes none: this one changes nothing.
call('PERSIST', KEYS[1])
-- MessagePack's `true`, with which a claim ends that was asked for.
local IS_SET = 0xc3
-- One string, one claim, nobody else: most renewals are no more than that, so they are written out.
local texts, answers, others = call('MGET', unpack(KEYS, 2)), {}, false
for i, text in ipairs(texts) do
  local asked = ARGV[i]
  local is_own = text and byte(text) == VERSION and byte(text, 18) ~= OTHER and sub(text, 2, 17) == sub(asked, 1, 16)
  local lease, units, expires, seat, token, _
  if is_own and #asked == 24 then
    lease, units, _, expires, _, seat, token = numbers_at('>I8I8I8I8I8I8I8', text, 19)
  end
  -- Where it was renewed with a longer lease before, the rule knows what is left of that.
  if expires and expires > now and expires <= now + lease and lease == numbers_at('>I8', asked, 17) then
    expires = now + lease
    call('SET', KEYS[i + 1], sub(text, 1, 42) .. columns('>I8', expires) .. sub(text, 51), 'PXAT', format('%d', expires))
    answers[i] = columns(STANDS, 'granted', seat, token, units, expires - now, byte(text, -1) == IS_SET and 1 or 0)
  else
    answers[i], others = false, true
  end
end
if not others then
  return answers
end
--@ row
--@ fence
--@ ledger
--@ settle
--@ rule
for i = 1, #texts do
  if not answers[i] then
    local text = ARGV[i]
    local lease = column(text, 17)
    local asked = { id = sub(text, 1, 16), lease = maybe(lease), extends = lease > 0, keep = tonumber(sub(text, 25)) }
    -- Read again: others on the same lock may have come before. Where something else is by now, the claim is gone.
    answers[i] = open_to_change(KEYS[i + 1], call('MGET', KEYS[i + 1])[1]) and renew(asked) or 'gone'
  end
end
return answers
