-- claim: asks for units of a lock. A quorum's claim has p_keep, p_min_age and p_again.
CREATE OR REPLACE FUNCTION leasehold.claim_1(
    p_name text, p_id bytea, p_limit bigint, p_most bigint, p_least bigint, p_leave boolean, p_barging boolean,
    p_lease bigint, p_patience bigint, p_lock_delay bigint, p_above bigint, p_inbox bigint, p_label text, p_value bytea,
    p_count bigint, p_keep bigint, p_min_age bigint, p_again boolean
) RETURNS leasehold.answer_1 LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    never CONSTANT bigint := 4611686018427387904;
    ready boolean := leasehold.begin_1();
    now_ms bigint := leasehold.clock_1();
    plain boolean := p_keep IS NULL AND p_most <= p_limit;
    fresh boolean;
    before leasehold.keys;
    h leasehold.keys;
    r leasehold.claims;
    there leasehold.claims;
    answer leasehold.answer_1;
    left_ms bigint;
    drawn bigint;
BEGIN
    LOOP
        INSERT INTO leasehold.keys (name, declared, effective, held, claims, waiting, quiet_until)
        VALUES (p_name, p_limit, p_limit, CASE WHEN plain THEN p_most ELSE 0 END, plain::integer, 0,
            CASE WHEN plain AND p_lease IS NOT NULL THEN now_ms + p_lease + p_lock_delay ELSE never END)
        ON CONFLICT DO NOTHING;
        fresh := FOUND;
        EXIT WHEN fresh;
        SELECT k.* INTO h FROM leasehold.keys k WHERE k.name = p_name FOR UPDATE;
        -- Given back in between: once more.
        EXIT WHEN FOUND;
    END LOOP;
    -- From here on the row is ours, and whatever is read was written by those who had it before. The clock is read after
    -- that, and once: the wait for the row may have been long.
    now_ms := leasehold.clock_1();
    IF fresh AND plain THEN
        -- It was free: most claims end here.
        INSERT INTO leasehold.claims
        SELECT p_name, p_id, n, n, p_most, p_most, p_most, now_ms, p_lease, p_patience, now_ms + p_lease, p_lock_delay,
            p_inbox, p_label, p_value, p_count, '{}', false
        FROM leasehold.number_1(p_above) n
        WHERE NOT EXISTS (SELECT FROM leasehold.refusals f WHERE f.id = p_id AND f.until > now_ms)
        RETURNING seat INTO drawn;
        IF FOUND THEN
            RETURN ROW('granted', drawn, drawn, p_most, coalesce(p_lease, -1), false, NULL::bigint, NULL::bigint)
                ::leasehold.answer_1;
        END IF;
        -- Refused, and that is decided: asked once more, the refusal might be over or swept away, and the row would keep
        -- the units of a claim that is not there.
        DELETE FROM leasehold.keys k WHERE k.name = p_name;
        RETURN leasehold.plain_1('gone');
    END IF;
    IF NOT fresh AND plain AND NOT p_barging AND NOT p_leave AND h.declared = p_limit AND h.held >= h.effective
        AND p_least <= h.effective AND now_ms < h.quiet_until THEN
        -- All is held, and no lease has ended: it can only queue up, unless there is somebody to bury, or it is here already.
        INSERT INTO leasehold.claims
        SELECT p_name, p_id, n, 0, 0, p_most, p_least, now_ms, p_lease, p_patience, now_ms + p_patience, p_lock_delay,
            p_inbox, p_label, p_value, p_count, '{}', false
        FROM leasehold.number_1(p_above) n
        WHERE NOT EXISTS (SELECT FROM leasehold.refusals f WHERE f.id = p_id AND f.until > now_ms)
            AND NOT EXISTS (SELECT FROM leasehold.claims c WHERE c.name = p_name AND c.id = p_id)
            AND (SELECT f.held = 0 AND f.expires <= now_ms FROM leasehold.claims f
                WHERE f.name = p_name AND f.held < f.wanted ORDER BY f.held = 0, f.seat LIMIT 1) IS NOT TRUE
        RETURNING seat INTO drawn;
        IF FOUND THEN
            UPDATE leasehold.keys k SET claims = k.claims + 1, waiting = k.waiting + 1 WHERE k.name = p_name;
            -- Whoever waits came before.
            RETURN ROW('waiting', drawn, NULL::bigint, 0, p_patience, NULL::boolean, least(h.waiting, 64),
                CASE WHEN h.waiting = 0 THEN least(h.quiet_until - now_ms, 1000) ELSE p_patience / 3 END)::leasehold.answer_1;
        END IF;
    END IF;
    IF EXISTS (SELECT FROM leasehold.refusals f WHERE f.id = p_id AND f.until > now_ms) THEN
        IF fresh THEN
            DELETE FROM leasehold.keys k WHERE k.name = p_name;
        END IF;
        RETURN leasehold.plain_1('gone');
    END IF;

    r := ROW(p_name, p_id, 0, 0, 0, p_most, p_least, now_ms, p_lease, p_patience, NULL, p_lock_delay, p_inbox, p_label,
        p_value, p_count, '{}', false)::leasehold.claims;
    IF fresh THEN
        SELECT k.* INTO h FROM leasehold.keys k WHERE k.name = p_name;
    END IF;
    before := h;
    IF h.declared <> p_limit AND leasehold.is_in_use_1(h, now_ms) THEN
        RETURN leasehold.plain_1('limit', h.declared);
    END IF;
    IF h.declared = p_limit THEN
        SELECT c.* INTO there FROM leasehold.claims c WHERE c.name = p_name AND c.id = p_id;
        IF FOUND THEN
            -- Asked again: before anything is buried, or an expired waiter would lose the place that it revives. A latch that
            -- is set belongs to nobody and lives as long as it was set for.
            RETURN leasehold.renew_one_1(h, p_id, p_lease, p_keep, now_ms, there.count IS NULL OR there.held = 0);
        END IF;
        IF p_least > h.effective THEN
            IF fresh THEN
                DELETE FROM leasehold.keys k WHERE k.name = p_name;
            END IF;
            RETURN leasehold.plain_1('lowered', h.effective);
        END IF;
    END IF;
    IF p_keep IS NOT NULL THEN
        SELECT s.born + p_min_age - now_ms INTO left_ms FROM leasehold.store s;
        IF left_ms > 0 THEN
            IF fresh THEN
                DELETE FROM leasehold.keys k WHERE k.name = p_name;
            END IF;
            RETURN leasehold.plain_1('young', left_ms);
        END IF;
    END IF;
    h := leasehold.enter_1(h, p_limit, now_ms);
    h := leasehold.catch_up_1(h, now_ms, 0);

    -- Only a lowered limit can leave claims that cannot fit, and need not be waited for.
    IF p_least <= h.effective - h.held AND (h.waiting = 0 OR p_barging OR h.effective < h.declared AND NOT EXISTS (
        SELECT FROM leasehold.claims c WHERE c.name = p_name AND c.held < c.wanted
            AND (c.at_least <= h.effective OR c.held = 0 AND c.expires <= now_ms))) THEN
        IF p_keep IS NULL THEN
            r.token := leasehold.number_1(p_above);
        ELSE
            IF NOT p_again OR h.agreed <> p_above + 1 THEN
                h.agreed := greatest(h.agreed, p_above) + 1;
            END IF;
            r.token := h.agreed;
        END IF;
        r.seat := r.token;
        r.held := least(p_most, h.effective - h.held);
        r.wanted := r.held;
        r.at_least := r.held;
        r.expires := now_ms + p_lease;
        h.held := h.held + r.held;
        h.claims := h.claims + 1;
        h.quiet_until := least(h.quiet_until, r.expires + p_lock_delay);
        IF p_keep IS NOT NULL THEN
            h.agreed_until := greatest(h.agreed_until, least(coalesce(r.expires + p_lock_delay, never) + p_keep, never));
        END IF;
        INSERT INTO leasehold.claims VALUES (r.*);
        answer := leasehold.granted_1(r, now_ms, true);
    ELSIF p_leave THEN
        answer := leasehold.plain_1('busy');
    ELSE
        r.seat := leasehold.number_1(p_above);
        r.expires := now_ms + p_patience;
        h.claims := h.claims + 1;
        h.waiting := h.waiting + 1;
        INSERT INTO leasehold.claims VALUES (r.*);
        answer := leasehold.waiting_1(h, r, now_ms, true);
    END IF;
    ready := leasehold.close_1(before, h, now_ms);
    RETURN answer;
END $$;
