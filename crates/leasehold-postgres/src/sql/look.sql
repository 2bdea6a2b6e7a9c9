-- Everything about some locks, and the database's time: one row per claim, or one without a claim.
SELECT k.name, leasehold.clock_1(), k.declared, k.effective, k.held, k.claims, k.waiting, k.quiet_until, k.agreed, k.agreed_until,
    c.id, c.seat, c.token, c.held, c.wanted, c.at_least, c.since, c.lease, c.patience, c.expires, c.lock_delay, c.inbox,
    c.label, c.value, c.count, c.given, c.asked
FROM leasehold.keys k LEFT JOIN leasehold.claims c USING (name)
WHERE k.name = ANY ($1)
ORDER BY k.name
