-- renew_one: extends the lease of a claim whose lock's row h is ours.
CREATE OR REPLACE FUNCTION leasehold.renew_one_1(h leasehold.keys, p_id bytea, p_lease bigint, p_keep bigint, p_now bigint)
RETURNS leasehold.answer_1 LANGUAGE plpgsql AS $$
DECLARE
    never CONSTANT bigint := 4611686018427387904;
    before leasehold.keys := h;
    r leasehold.claims;
    met leasehold.claims;
    alive boolean;
    ready boolean;
    answer leasehold.answer_1;
BEGIN
    SELECT c.* INTO r FROM leasehold.claims c WHERE c.name = h.name AND c.id = p_id;
    IF NOT FOUND THEN
        RETURN leasehold.plain_1('gone');
    END IF;
    -- A holder that is over stays over, even before anybody has buried it.
    alive := r.held = 0 OR coalesce(r.expires > p_now, true);
    IF alive THEN
        -- Never shorter: a renewal that was under way for long must not undo a longer one that overtook it.
        r.expires := CASE WHEN r.held = 0 THEN greatest(p_now + r.patience, r.expires)
            WHEN p_lease IS NOT NULL THEN greatest(p_now + p_lease, r.expires) END;
        UPDATE leasehold.claims c SET lease = p_lease, expires = r.expires WHERE c.name = h.name AND c.id = p_id;
        IF r.held > 0 THEN
            h.quiet_until := least(h.quiet_until, r.expires + r.lock_delay);
        END IF;
        IF p_keep IS NOT NULL AND h.agreed > 0 THEN
            h.agreed_until := greatest(h.agreed_until, least(coalesce(r.expires + r.lock_delay, never) + p_keep, never));
        END IF;
    END IF;
    -- Where nobody waits nothing can change hands, and ten thousand renewals need not walk.
    IF h.waiting > 0 THEN
        h := leasehold.catch_up_1(h, p_now, r.seat);
        SELECT c.* INTO met FROM leasehold.claims c WHERE c.name = h.name AND c.id = p_id;
        IF met.token <> r.token THEN
            -- Its own request found it promoted: the owner is alive, so the full lease may start.
            UPDATE leasehold.claims c
            SET expires = CASE WHEN p_lease IS NOT NULL THEN greatest(p_now + p_lease, met.expires) END
            WHERE c.name = h.name AND c.id = p_id;
        END IF;
    END IF;
    answer := CASE WHEN alive THEN leasehold.standing_1(h, p_id, p_now, true) ELSE leasehold.plain_1('gone') END;
    ready := leasehold.close_1(before, h, p_now);
    RETURN answer;
END $$;

-- renew: extends the leases of many claims; p_names and the others have one element for each. One answer each, in order.
CREATE OR REPLACE FUNCTION leasehold.renew_1(p_names text[], p_ids bytea[], p_leases bigint[], p_keeps bigint[])
RETURNS SETOF leasehold.answer_1 LANGUAGE plpgsql AS $$
DECLARE
    ready boolean := leasehold.begin_1();
    now_ms bigint;
    answers leasehold.answer_1[];
    h leasehold.keys;
BEGIN
    -- Always in the same order: two of these never wait for each other in a circle.
    PERFORM FROM leasehold.keys k WHERE k.name = ANY (p_names) ORDER BY k.name FOR UPDATE;
    now_ms := leasehold.clock_1();
    -- A holder, nobody waits, nothing else changes: most renewals are no more than that.
    WITH asked AS MATERIALIZED (
        SELECT * FROM unnest(p_names, p_ids, p_leases, p_keeps) WITH ORDINALITY AS u(name, id, lease, keep, place)
    ), done AS (
        UPDATE leasehold.claims c SET lease = u.lease, expires = greatest(now_ms + u.lease, c.expires)
        FROM asked u JOIN leasehold.keys k USING (name)
        WHERE c.name = u.name AND c.id = u.id AND u.lease IS NOT NULL AND u.keep IS NULL
            AND k.waiting = 0 AND c.held > 0 AND c.expires > now_ms AND k.quiet_until <= c.expires + c.lock_delay
        RETURNING u.place, leasehold.granted_1(c, now_ms, true) AS answer
    )
    SELECT array_agg(d.answer ORDER BY u.place) INTO answers FROM asked u LEFT JOIN done d USING (place);

    FOR i IN 1 .. cardinality(p_names) LOOP
        IF answers[i] IS NULL THEN
            SELECT k.* INTO h FROM leasehold.keys k WHERE k.name = p_names[i];
            IF FOUND THEN
                answers[i] := leasehold.renew_one_1(h, p_ids[i], p_leases[i], p_keeps[i], now_ms);
            ELSE
                answers[i] := leasehold.plain_1('gone');
            END IF;
        END IF;
    END LOOP;
    RETURN QUERY SELECT a.said, a.seat, a.token, a.units, a.lease, a.asked, a.ahead, a.look_in
        FROM unnest(answers) WITH ORDINALITY AS a(said, seat, token, units, lease, asked, ahead, look_in, place)
        ORDER BY a.place;
END $$;
