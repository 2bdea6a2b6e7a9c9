-- Requests of many tasks as one call, sorted by name: two of these never wait for each other in a circle. One answer each, in
-- order. Nobody waits long for somebody else's lock: when one of them would have to, nothing happens, and each is sent alone.

-- claims: as claim, many times.
CREATE OR REPLACE FUNCTION leasehold.claims_1(
    p_names text[], p_ids bytea[], p_limits bigint[], p_mosts bigint[], p_leasts bigint[], p_leaves boolean[],
    p_bargings boolean[], p_leases bigint[], p_patiences bigint[], p_lock_delays bigint[], p_aboves bigint[],
    p_inboxes bigint[], p_labels text[], p_values bytea[], p_counts bigint[], p_keeps bigint[], p_min_ages bigint[],
    p_agains boolean[]
) RETURNS SETOF leasehold.answer_1 LANGUAGE plpgsql SET lock_timeout = '100ms' SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN QUERY
    SELECT c.* FROM unnest(p_names, p_ids, p_limits, p_mosts, p_leasts, p_leaves, p_bargings, p_leases, p_patiences,
            p_lock_delays, p_aboves, p_inboxes, p_labels, p_values, p_counts, p_keeps, p_min_ages, p_agains)
        AS a (name, id, limits, most, least, leave, barging, lease, patience, lock_delay, above, inbox, label, value, count,
            keep, min_age, again),
    LATERAL leasehold.claim_1(a.name, a.id, a.limits, a.most, a.least, a.leave, a.barging, a.lease, a.patience,
        a.lock_delay, a.above, a.inbox, a.label, a.value, a.count, a.keep, a.min_age, a.again) AS c;
END $$;

-- releases: as release, many times. It lasts if one of them must.
CREATE OR REPLACE FUNCTION leasehold.releases_1(p_names text[], p_ids bytea[], p_refuse_fors bigint[], p_inboxes bigint[])
RETURNS SETOF text LANGUAGE plpgsql SET lock_timeout = '100ms' SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    said text;
    ready boolean := true;
BEGIN
    FOR i IN 1 .. cardinality(p_names) LOOP
        said := leasehold.give_back_1(p_names[i], p_ids[i], p_refuse_fors[i], p_inboxes[i]);
        ready := ready AND said = 'freed';
        RETURN NEXT said;
    END LOOP;
    IF ready THEN
        ready := leasehold.forget_1();
    END IF;
END $$;
