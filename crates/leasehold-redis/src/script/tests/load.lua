-- load: puts a lock into a state, for tests.
-- keys: the fence, the lock
-- arguments: the last number, since when nothing was forgotten; the head; each claim
-- result: nothing
--@ clock
--@ format
--@ row
--@ fence
--@ ledger
open_fence()
local number, since = cmsgpack.unpack(ARGV[1])
last, rest = number, format(' %d ', since) .. sub(rest, -27)
write_fence()
if #ARGV > 3 then
  open(KEYS[2], false)
  local limit, effective, quiet_until, agreed, agreed_until = cmsgpack.unpack(ARGV[2])
  head = head_of(limit, effective, quiet_until, agreed, agreed_until)
  for i = 3, #ARGV - 2 do
    local row = read_other(sub(ARGV[i], 1, 16), sub(ARGV[i], 17))
    head.claims, head.held = head.claims + 1, head.held + row.held
    head.waiting = head.waiting + (waits(row) and 1 or 0)
    put(row)
  end
  write()
end
return {}
