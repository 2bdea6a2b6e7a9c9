-- inspect: all that is stored about a lock.
-- keys: the lock
-- arguments: none
-- result: nothing, or the time, the head, and each claim
--@ clock
--@ format
--@ ledger
if not open(KEYS[1]) then
  return { 'foreign' }
elseif not head then
  return { 'free' }
end
local all = {}
for i, r in ipairs(rows()) do
  all[i] = { r.id, r.seat, r.token, r.held, r.wanted, r.least, r.since, r.lease, r.patience, r.expires, r.lock_delay,
    r.inbox, r.label, r.value, r.count, r.given, r.asked }
end
return { 'used', now, head.limit, head.effective, head.held, head.claims, head.waiting, head.quiet_until, head.last,
  head.last_until, all }
