-- release: gives back, or leaves the queue.
-- keys: the fence, the lock and, to refuse the id from now on, its mark
-- arguments: the claim's id, for how many milliseconds to refuse it
-- result: what was found
--@ clock
local id, refuse_for = ARGV[1], tonumber(ARGV[2])
if KEYS[3] then
  -- Changes nothing, so that the mark can be written where memory is full.
  call('PERSIST', KEYS[1])
  -- Also when the claim is there: it may be asked twice, and the other copy still be on the way.
  call('SET', KEYS[3], string.format('%d', now + refuse_for), 'PXAT', now + refuse_for)
end
-- No error where it is no string.
local there = call('MGET', KEYS[2])[1]
if there and string.byte(there) == 1 then
  local _, limit, effective, _, _, last_until, owner, _, _, held, _, _, _, _, _, expires = cmsgpack.unpack(there)
  if owner == id and effective == limit and last_until <= now and held > 0
      and (not expires or expires > now) then
    -- The only claim, and nothing else to remember: most releases end here.
    call('DEL', KEYS[2])
    return { 'held' }
  end
end
--@ format
--@ fence
--@ ledger
--@ settle
if not open(KEYS[2], there) then
  return { 'foreign' }
end
local row = head and row_by_id(id)
if not row then
  return { 'gone' }
end
local answer = { 'held' }
if row.held == 0 then
  answer = { 'waiting' }
elseif is_expired(row) then
  answer = { 'gone' }
end
-- A holder that is over cannot cut its lock delay short by releasing late.
if answer[1] ~= 'gone' then
  bury(row)
end
catch_up()
return close(answer)
