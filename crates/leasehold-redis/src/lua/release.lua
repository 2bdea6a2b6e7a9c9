-- release: gives back, or leaves the queue.
-- keys: the fence, the lock and, to refuse the id from now on, its mark
-- arguments: the claim's id, for how many milliseconds to refuse it
-- result: what was found
--@ clock
--@ format
local id, refuse_for = ARGV[1], tonumber(ARGV[2])
if KEYS[3] then
  -- Changes nothing, so that the mark can be written where memory is full.
  call('PERSIST', KEYS[1])
  -- Also when the claim is there: it may be asked twice, and the other copy still be on the way.
  call('SET', KEYS[3], string.format('%d', now + refuse_for), 'PXAT', now + refuse_for)
end
-- No error where it is no string: then it is nothing, or several claims.
local alone = call('MGET', KEYS[2])[1]
local first = alone and { alone } or redis.pcall('ZRANGE', KEYS[2], '0', '5')
local text, about = first[1], first[2]
if text and string.byte(text) == VERSION and (alone or about and string.byte(about) == ABOUT) then
  local _, _, limit, effective, quiet_until, last, last_until, owner, expires, _, _, _, held = unpack_some(text, 12, 0)
  if owner == id and effective == limit and last_until <= now and held > 0 and (not expires or expires > now) then
    -- Nearly all releases end here, before the rule is even loaded.
    if alone then
      -- The only claim, and nothing else to remember.
      call('DEL', KEYS[2])
      return 'held'
    end
--@ pass
    if pass_on() then
      return 'held'
    end
  end
end
--@ row
--@ fence
--@ ledger
--@ settle
if not open(KEYS[2], alone) then
  return 'foreign'
end
local row = head and row_by_id(id)
if not row then
  return 'gone'
end
-- Changes nothing, so that a grant can be written where memory is full.
call('PERSIST', KEYS[1])
local answer = 'held'
if row.held == 0 then
  answer = 'waiting'
elseif is_expired(row) then
  answer = 'gone'
end
-- A holder that is over cannot cut its lock delay short by releasing late.
if answer ~= 'gone' then
  bury(row)
end
catch_up()
return close(answer)
