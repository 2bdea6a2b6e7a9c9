-- inspect: all that is stored about some locks.
-- keys: the locks
-- arguments: none
-- result: of each that it is free or foreign, or the time, its head, and its claims
--@ clock
--@ format
--@ row
--@ ledger
local all = {}
for i, name in ipairs(KEYS) do
  if not open(name, call('MGET', name)[1]) then
    all[i] = { 'foreign' }
  elseif not head then
    all[i] = { 'free' }
  else
    local claims = {}
    for j, r in ipairs(rows()) do
      claims[j] = { r.id, r.seat, r.token, r.held, r.wanted, r.least, r.since, r.lease, r.patience, r.expires,
        r.lock_delay, r.inbox, r.label, r.value, r.count, r.given, r.asked }
    end
    all[i] = { 'used', now, head.limit, head.effective, head.held, head.claims, head.waiting, head.quiet_until,
      head.last, head.last_until, claims }
  end
end
return all
