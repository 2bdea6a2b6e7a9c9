-- give_back: gives back, or leaves the queue; says held, waiting or gone, or freed: held, and nobody comes to harm if a crash
-- undoes it. With p_refuse_for the id is refused for so long.
CREATE OR REPLACE FUNCTION leasehold.give_back_1(p_name text, p_id bytea, p_refuse_for bigint) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
    ready boolean := leasehold.begin_1();
    now_ms bigint;
    before leasehold.keys;
    h leasehold.keys;
    r leasehold.claims;
    fresh boolean := false;
    until bigint;
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
        RETURNING c.expires INTO until;
        IF FOUND THEN
            -- The only claim, and nothing else to remember: most releases end here. Undone, it would be held until its
            -- lease ends, which is soon. Whoever has the lock after this commits later, and that makes this last too.
            DELETE FROM leasehold.keys k WHERE k.name = p_name;
            RETURN CASE WHEN p_refuse_for IS NULL AND until <= now_ms + 60000 THEN 'freed' ELSE 'held' END;
        END IF;
    END IF;
    before := h;
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
CREATE OR REPLACE FUNCTION leasehold.release_1(p_name text, p_id bytea, p_refuse_for bigint) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
    said text := leasehold.give_back_1(p_name, p_id, p_refuse_for);
    ready boolean;
BEGIN
    IF said = 'freed' THEN
        ready := leasehold.forget_1();
    END IF;
    RETURN said;
END $$;
