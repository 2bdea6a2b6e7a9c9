-- The rule: who holds, who waits, who is next. A translation of crates/leasehold-core/src/rule, in its words; where the
-- two differ this is wrong. Here the walk from the front, which every operation ends with.

-- refuse: refuses an id from now on, for as long as late copies of its request may arrive (LATE of the rule).
CREATE OR REPLACE FUNCTION leasehold.refuse_1(p_id bytea, p_now bigint) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO leasehold.refusals (id, until) VALUES (p_id, p_now + 60000)
    ON CONFLICT (id) DO UPDATE SET until = excluded.until;
    RETURN true;
END $$;

-- catch_up: frees what is over, then grants from the front while claims fit. Tells those who were granted, but not the
-- seat p_own: its owner learns it from the answer.
CREATE OR REPLACE FUNCTION leasehold.catch_up_1(h leasehold.keys, p_now bigint, p_own bigint)
RETURNS leasehold.keys LANGUAGE plpgsql AS $$
DECLARE
    never CONSTANT bigint := 4611686018427387904;
    r leasehold.claims;
    units bigint;
    rows bigint;
    waiters bigint;
    free bigint;
    buried integer := 0;
BEGIN
    IF p_now >= h.quiet_until THEN
        WITH over AS (
            SELECT c.id FROM leasehold.claims c
            WHERE c.name = h.name AND c.held > 0 AND c.expires + c.lock_delay <= p_now
            ORDER BY c.expires + c.lock_delay, c.id LIMIT 64
        ), dead AS (
            DELETE FROM leasehold.claims c USING over WHERE c.name = h.name AND c.id = over.id
            RETURNING c.id, c.held, c.wanted, c.count
        ), marked AS (
            -- A late copy of the request that set a latch would set it again, for ever.
            INSERT INTO leasehold.refusals (id, until) SELECT d.id, p_now + 60000 FROM dead d WHERE d.count IS NOT NULL
            ON CONFLICT (id) DO UPDATE SET until = excluded.until
        )
        SELECT coalesce(sum(d.held), 0), count(*), count(*) FILTER (WHERE d.held < d.wanted)
        INTO units, rows, waiters FROM dead d;
        h.held := h.held - units;
        h.claims := h.claims - rows;
        h.waiting := h.waiting - waiters;
        SELECT coalesce(min(c.expires + c.lock_delay), never) INTO h.quiet_until
        FROM leasehold.claims c WHERE c.name = h.name AND c.held > 0;
    END IF;

    WHILE h.waiting > 0 AND buried < 64 LOOP
        -- Who asks for more than a lowered limit is passed over, or it would block everybody behind it.
        SELECT c.* INTO r FROM leasehold.claims c WHERE c.name = h.name AND c.held < c.wanted
            AND (c.at_least <= h.effective OR c.held = 0 AND c.expires <= p_now)
        ORDER BY c.held = 0, c.seat LIMIT 1;
        EXIT WHEN NOT FOUND;
        free := greatest(h.effective - h.held, 0);
        IF r.held = 0 AND r.expires <= p_now THEN
            DELETE FROM leasehold.claims c WHERE c.name = h.name AND c.id = r.id;
            h.claims := h.claims - 1;
            h.waiting := h.waiting - 1;
            buried := buried + 1;
        ELSIF coalesce(r.expires > p_now, true) AND r.at_least - r.held <= free THEN
            units := least(r.wanted - r.held, free);
            h.held := h.held + units;
            h.waiting := h.waiting - 1;
            h.quiet_until := least(h.quiet_until, r.expires + r.lock_delay);
            units := r.held + units;
            r.token := leasehold.number_1(0);
            UPDATE leasehold.claims c
            SET held = units, wanted = units, at_least = units, token = r.token, since = p_now
            WHERE c.name = h.name AND c.id = r.id;
            IF r.seat <> p_own THEN
                PERFORM leasehold.tell_1(r.inbox, r.seat, r.token, units, h.name);
            END IF;
        ELSE
            EXIT;
        END IF;
    END LOOP;
    IF buried = 64 AND h.waiting > 0 THEN
        -- There may be more to do: whoever asks next goes on, and waiters are told to ask at once.
        h.quiet_until := least(h.quiet_until, p_now);
    END IF;
    RETURN h;
END $$;

-- close: writes the lock's row back, or removes it when nothing is left to remember.
CREATE OR REPLACE FUNCTION leasehold.close_1(p_before leasehold.keys, h leasehold.keys, p_now bigint)
RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    IF h.claims = 0 AND p_now < h.agreed_until THEN
        -- So that a sweep comes by when it can be forgotten.
        h.quiet_until := least(h.quiet_until, h.agreed_until);
    END IF;
    IF h.claims = 0 AND h.effective = h.declared AND p_now >= h.agreed_until THEN
        DELETE FROM leasehold.keys k WHERE k.name = h.name;
    ELSIF h IS DISTINCT FROM p_before THEN
        UPDATE leasehold.keys k
        SET declared = h.declared, effective = h.effective, held = h.held, claims = h.claims, waiting = h.waiting,
            quiet_until = h.quiet_until, agreed = h.agreed, agreed_until = h.agreed_until
        WHERE k.name = h.name;
    END IF;
    RETURN true;
END $$;
