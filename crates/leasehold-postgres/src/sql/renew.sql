-- renew_one: extends the lease of a claim whose lock's row h is ours, or only says how it stands.
CREATE OR REPLACE FUNCTION leasehold.renew_one_1(
    h leasehold.keys, p_id bytea, p_lease bigint, p_keep bigint, p_now bigint, p_extend boolean
) RETURNS leasehold.answer_1 LANGUAGE plpgsql AS $$
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
    IF alive AND p_extend THEN
        -- Never shorter: a renewal that was under way for long must not undo a longer one that overtook it.
        r.expires := CASE WHEN r.held = 0 THEN greatest(p_now + r.patience, r.expires)
            WHEN p_lease IS NOT NULL THEN greatest(p_now + p_lease, r.expires) END;
        UPDATE leasehold.claims c
        -- What is left of a longer lease counts until it has ended.
        SET lease = CASE WHEN r.held = 0 THEN p_lease ELSE r.expires - p_now END, expires = r.expires
        WHERE c.name = h.name AND c.id = p_id;
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
        IF met.token <> r.token AND p_extend THEN
            -- Its own request found it promoted: the owner is alive, so the full lease may start.
            met.expires := CASE WHEN p_lease IS NOT NULL THEN greatest(p_now + p_lease, met.expires) END;
            UPDATE leasehold.claims c SET expires = met.expires, lease = met.expires - p_now
            WHERE c.name = h.name AND c.id = p_id;
        END IF;
    END IF;
    answer := CASE WHEN alive THEN leasehold.standing_1(h, p_id, p_now, p_extend) ELSE leasehold.plain_1('gone') END;
    ready := leasehold.close_1(before, h, p_now);
    RETURN answer;
END $$;

-- kept: how a claim stands whose lock's row another session keeps. Read without the row, so that nothing is extended;
-- the answer says so.
CREATE OR REPLACE FUNCTION leasehold.kept_1(h leasehold.keys, p_id bytea, p_now bigint) RETURNS leasehold.answer_1
LANGUAGE plpgsql AS $$
DECLARE
    r leasehold.claims;
    answer leasehold.answer_1;
BEGIN
    SELECT c.* INTO r FROM leasehold.claims c WHERE c.name = h.name AND c.id = p_id;
    IF NOT FOUND OR (r.held > 0 AND r.expires <= p_now) THEN
        RETURN leasehold.plain_1('gone');
    ELSIF r.held < r.wanted THEN
        answer := leasehold.waiting_1(h, r, p_now, false);
    ELSE
        answer := leasehold.granted_1(r, p_now, false);
    END IF;
    answer.said := 'kept ' || answer.said;
    RETURN answer;
END $$;

-- renew: extends the leases of many claims; p_names and the others have one element for each. One answer each, in order.
-- A row that another session keeps costs the others nothing: without p_wait its claim is answered as it stands, with no
-- lease, and with p_wait this waits for the rows for so many milliseconds. A lease of 0 extends nothing: it only asks how
-- the claim stands.
CREATE OR REPLACE FUNCTION leasehold.renew_1(
    p_names text[], p_ids bytea[], p_leases bigint[], p_keeps bigint[], p_wait bigint
) RETURNS SETOF leasehold.answer_1 LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    ready boolean := leasehold.begin_1();
    now_ms bigint;
    mine text[];
    all_mine boolean;
    answers leasehold.answer_1[];
    h leasehold.keys;
BEGIN
    -- Always in the same order: two of these never wait for each other in a circle.
    IF p_wait IS NULL THEN
        SELECT array_agg(k.name) INTO mine FROM (
            SELECT a.name FROM leasehold.keys a WHERE a.name = ANY (p_names) ORDER BY a.name FOR UPDATE SKIP LOCKED
        ) AS k;
    ELSE
        PERFORM set_config('lock_timeout', p_wait::text, true);
        SELECT array_agg(k.name) INTO mine FROM (
            SELECT a.name FROM leasehold.keys a WHERE a.name = ANY (p_names) ORDER BY a.name FOR UPDATE
        ) AS k;
    END IF;
    now_ms := leasehold.clock_1();
    all_mine := cardinality(mine) = (SELECT count(DISTINCT n) FROM unnest(p_names) AS n);
    -- A holder, nobody waits, nothing else changes: most renewals are no more than that.
    WITH asked AS MATERIALIZED (
        SELECT * FROM unnest(p_names, p_ids, p_leases, p_keeps) WITH ORDINALITY AS u(name, id, lease, keep, place)
    ), done AS (
        UPDATE leasehold.claims c
        SET lease = greatest(u.lease, c.expires - now_ms), expires = greatest(now_ms + u.lease, c.expires)
        FROM asked u JOIN leasehold.keys k USING (name)
        WHERE c.name = u.name AND c.id = u.id AND u.lease > 0 AND u.keep IS NULL
            AND (all_mine OR u.name = ANY (mine))
            AND k.waiting = 0 AND c.held > 0 AND c.expires > now_ms AND k.quiet_until <= c.expires + c.lock_delay
        RETURNING u.place, leasehold.granted_1(c, now_ms, true) AS answer
    )
    SELECT array_agg(d.answer ORDER BY u.place) INTO answers FROM asked u LEFT JOIN done d USING (place);

    FOR i IN 1 .. cardinality(p_names) LOOP
        IF answers[i] IS NULL THEN
            SELECT k.* INTO h FROM leasehold.keys k WHERE k.name = p_names[i];
            IF NOT FOUND THEN
                answers[i] := leasehold.plain_1('gone');
            ELSIF all_mine OR p_names[i] = ANY (mine) THEN
                answers[i] := leasehold.renew_one_1(
                    h, p_ids[i], p_leases[i], p_keeps[i], now_ms, p_leases[i] IS DISTINCT FROM 0);
            ELSE
                answers[i] := leasehold.kept_1(h, p_ids[i], now_ms);
            END IF;
        END IF;
    END LOOP;
    RETURN QUERY SELECT a.said, a.seat, a.token, a.units, a.lease, a.asked, a.ahead, a.look_in
        FROM unnest(answers) WITH ORDINALITY AS a(said, seat, token, units, lease, asked, ahead, look_in, place)
        ORDER BY a.place;
END $$;
