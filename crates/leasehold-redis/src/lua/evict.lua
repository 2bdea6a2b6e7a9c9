-- evict: ends the claim that holds with a token, whoever owns it.
-- keys: the fence, the lock
-- arguments: the token
-- result: whether there was one
--@ clock
--@ format
--@ row
--@ fence
--@ ledger
--@ settle
local token = tonumber(ARGV[1])
if not open_to_change(KEYS[2], call('MGET', KEYS[2])[1]) then
  return 'foreign'
end
local row = head and holder(token)
if not row or frees_at(row) <= now then
  return 'no'
end
refuse_copies(row)
bury(row)
if wait_for(0) == 0 then
  number(token)
end
if head.last > 0 then
  -- A quorum that has not heard of it on a majority must not claim it again here.
  head.last = head.last + 1
end
local ended = { [row.inbox] = true }
if row.count then
  -- Who waits behind a latch waits for it to open, which it never will.
  for _, waiter in ipairs(rows()) do
    if waiter.held == 0 then
      bury(waiter)
      ended[waiter.inbox] = true
    end
  end
end
for inbox in pairs(ended) do
  told[#told + 1] = inbox
end
table.sort(told)
catch_up()
return close('yes')
