-- give_back: gives back, or leaves the queue; says held, waiting or gone; freed: held, and nobody comes to harm if a crash
-- undoes it; or passed with seat, token and units: held, and the next one is of the inbox p_inbox, which is told by this alone.
-- With p_refuse_for the id is refused for so long.
CREATE OR REPLACE FUNCTION leasehold.give_back_1(p_name text, p_id bytea, p_refuse_for bigint, p_inbox bigint) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
    ready boolean := leasehold.begin_1();
    now_ms bigint;
    before leasehold.keys;
    h leasehold.keys;
    r leasehold.claims;
    fresh boolean := false;
    until bigint;
    free bigint;
    is_next_over boolean;
    answer text := 'held';
BEGIN
    LOOP
        SELECT k.* INTO h FROM leasehold.keys k WHERE k.name = p_name FOR UPDATE;
        EXIT WHEN FOUND OR p_refuse_for IS NULL;
        -- The claim may be on its way, and has not seen the refusal yet: it has to wait for this row, and then sees it.
        INSERT INTO leasehold.keys (name, declared, effective, held, claims, waiting, quiet_until)
        VALUES (p_name, 1, 1, 0, 0, 0, 4611686018427387904) ON CONFLICT DO NOTHING;
        fresh := FOUND;
    END LOOP;
    now_ms := leasehold.clock_1();
    IF p_refuse_for IS NOT NULL THEN
        -- Also when the claim is there: it may be asked twice, and the other copy still be on the way.
        INSERT INTO leasehold.refusals (id, until) VALUES (p_id, now_ms + p_refuse_for)
        ON CONFLICT (id) DO UPDATE SET until = excluded.until;
    END IF;
    IF h.name IS NULL THEN
        RETURN 'gone';
    END IF;
    IF h.claims = 1 AND h.effective = h.declared AND h.agreed_until <= now_ms THEN
        DELETE FROM leasehold.claims c
        WHERE c.name = p_name AND c.id = p_id AND c.held > 0 AND coalesce(c.expires > now_ms, true)
        RETURNING c.expires + c.lock_delay INTO until;
        IF FOUND THEN
            -- The only claim, and nothing else to remember: most releases end here. Undone, it would be lost when its lease
            -- ends, and kept from others for its delay: both soon. Whoever has the lock after this commits later, and that makes this last too.
            DELETE FROM leasehold.keys k WHERE k.name = p_name;
            RETURN CASE WHEN p_refuse_for IS NULL AND until <= now_ms + 60000 THEN 'freed' ELSE 'held' END;
        END IF;
    END IF;
    before := h;
    IF h.waiting > 0 AND now_ms < h.quiet_until THEN
        -- A holder leaves, somebody waits, and no lease has ended: the next one is who stands at the front.
        DELETE FROM leasehold.claims c
        WHERE c.name = p_name AND c.id = p_id AND c.held > 0 AND c.held = c.wanted AND coalesce(c.expires > now_ms, true)
        RETURNING c.held INTO free;
        IF FOUND THEN
            h.held := h.held - free;
            h.claims := h.claims - 1;
            free := greatest(h.effective - h.held, 0);
            -- Nobody else moves claims while the lock's row is ours, so where the front one is stored is still true.
            UPDATE leasehold.claims c
            SET held = least(c.wanted, free), wanted = least(c.wanted, free), at_least = least(c.wanted, free),
                token = nextval('leasehold.numbers'), since = now_ms
            WHERE c.ctid = (
                    SELECT f.ctid FROM leasehold.claims f WHERE f.name = p_name AND f.held < f.wanted
                    ORDER BY f.held = 0, f.seat LIMIT 1)
                AND c.held = 0 AND c.at_least <= free AND coalesce(c.expires > now_ms, true)
            RETURNING c.seat, c.token, c.held, c.inbox, c.expires + c.lock_delay, (
                SELECT f.expires <= now_ms FROM leasehold.claims f WHERE f.name = p_name AND f.held < f.wanted
                ORDER BY f.held = 0, f.seat OFFSET 1 LIMIT 1)
            INTO r.seat, r.token, r.held, r.inbox, until, is_next_over;
            IF FOUND THEN
                h.held := h.held + r.held;
                h.waiting := h.waiting - 1;
                h.quiet_until := least(h.quiet_until, until);
                IF r.inbox = p_inbox AND p_inbox <> 0 THEN
                    answer := 'passed ' || r.seat::text || ' ' || r.token::text || ' ' || r.held::text;
                ELSE
                    ready := leasehold.tell_1(r.inbox, r.seat, r.token, r.held, p_name) IS NULL;
                END IF;
                IF r.held = free AND is_next_over IS NOT TRUE THEN
                    -- It took all that was free, and there is nobody to bury behind it: most hand-overs end here.
                    UPDATE leasehold.keys k
                    SET held = h.held, claims = h.claims, waiting = h.waiting, quiet_until = h.quiet_until
                    WHERE k.name = p_name;
                    RETURN answer;
                END IF;
            END IF;
            h := leasehold.catch_up_1(h, now_ms, 0);
            ready := leasehold.close_1(before, h, now_ms);
            RETURN answer;
        END IF;
    END IF;
    SELECT c.* INTO r FROM leasehold.claims c WHERE c.name = p_name AND c.id = p_id;
    IF NOT FOUND THEN
        IF fresh THEN
            DELETE FROM leasehold.keys k WHERE k.name = p_name;
        END IF;
        RETURN 'gone';
    ELSIF r.held = 0 THEN
        answer := 'waiting';
    ELSIF r.expires <= now_ms THEN
        answer := 'gone';
    END IF;
    -- A holder that is over cannot cut its lock delay short by releasing late.
    IF answer <> 'gone' THEN
        DELETE FROM leasehold.claims c WHERE c.name = p_name AND c.id = p_id;
        h.held := h.held - r.held;
        h.claims := h.claims - 1;
        h.waiting := h.waiting - (r.held < r.wanted)::integer;
    END IF;
    h := leasehold.catch_up_1(h, now_ms, 0);
    ready := leasehold.close_1(before, h, now_ms);
    RETURN answer;
END $$;

-- release: the same, alone.
CREATE OR REPLACE FUNCTION leasehold.release_1(p_name text, p_id bytea, p_refuse_for bigint, p_inbox bigint) RETURNS text
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    said text := leasehold.give_back_1(p_name, p_id, p_refuse_for, p_inbox);
    ready boolean;
BEGIN
    IF said = 'freed' THEN
        ready := leasehold.forget_1();
    END IF;
    RETURN said;
END $$;
