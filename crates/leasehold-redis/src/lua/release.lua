-- release: gives back, or leaves the queue.
-- keys: the fence, the lock and, to refuse the id from now on, its mark
-- arguments: the claim's id, for how many milliseconds to refuse it if so, the secret,
--   the server's replication id
-- result: what was found
--@ clock
--@ format
local lock, id = KEYS[2], ARGV[1]
if KEYS[3] then
  -- Changes nothing, so that the mark can be written where memory is full.
  call('PERSIST', KEYS[1])
  -- Also when the claim is there: it may be asked twice, and the other copy still be on the way.
  local until_then = format('%d', now + ARGV[2])
  call('SET', KEYS[3], until_then, 'PXAT', until_then)
end
--@ numbers
--@ give
if answer then
  return answer
end
--@ row
--@ fence
--@ ledger
--@ settle
if not open_to_change(lock, alone) then
  return 'foreign'
end
local row = head and row_by_id(id)
if not row then
  return 'gone'
end
-- Changes nothing, so that a grant can be written where memory is full.
call('PERSIST', KEYS[1])
answer = 'held'
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
