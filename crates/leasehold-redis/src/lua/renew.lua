-- renew: extends the leases of many claims.
-- keys: the fence, then the lock of each claim
-- arguments: of each claim its id, its lease, and for how long a quorum remembers its token
-- result: how each of them stands
--@ clock
--@ format
-- What is held must be extended even where memory is full. A server that has none left lets a script write if its
-- first write takes none: this one changes nothing.
call('PERSIST', KEYS[1])
-- One string, one claim, nobody else: most renewals are no more than that, so they are written out.
local texts, answers, others = call('MGET', unpack(KEYS, 2)), {}, false
for i, text in ipairs(texts) do
  local id, lease, keep = cmsgpack.unpack(ARGV[i])
  local fixed, _, limit, effective, quiet_until, last, last_until, owner, expires, seat, token, held, wanted, least, since
  if text and string.byte(text) == VERSION then
    fixed, _, limit, effective, quiet_until, last, last_until, owner, expires, _, seat, token, held, wanted, least,
      since = unpack_some(text, 15, 0)
  end
  if owner == id and held == wanted and expires and expires > now and lease and not keep
      and effective == limit and last_until <= now then
    local _, _, lock_delay, _, _, _, _, _, asked = unpack_some(text, 8, fixed)
    expires = math.max(now + lease, expires)
    local frees = expires + lock_delay
    text = pack(VERSION, limit, limit, math.min(quiet_until, frees), last, last_until, id, expires, lease, seat, token,
      held, held, least, since) .. string.sub(text, fixed + 1)
    call('SET', KEYS[i + 1], text, 'PXAT', string.format('%d', frees))
    answers[i] = struct.pack(STANDS, 'granted', seat, token, held, expires - now, asked and 1 or 0)
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
for i, argument in ipairs(ARGV) do
  if not answers[i] then
    local asked = {}
    asked.id, asked.lease, asked.keep = cmsgpack.unpack(argument)
    -- Read again: others on the same lock may have come before. Where something else is by now, the claim is gone.
    answers[i] = open(KEYS[i + 1], call('MGET', KEYS[i + 1])[1]) and renew(asked) or 'gone'
  end
end
return answers
