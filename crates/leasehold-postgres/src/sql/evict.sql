-- evict: ends the claim that holds with a token, whoever owns it; says whether there was one.
CREATE OR REPLACE FUNCTION leasehold.evict_1(p_name text, p_token bigint) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    ready boolean := leasehold.begin_1();
    now_ms bigint;
    before leasehold.keys;
    h leasehold.keys;
    r leasehold.claims;
    ended bigint[];
    rows bigint;
    inbox bigint;
BEGIN
    SELECT k.* INTO h FROM leasehold.keys k WHERE k.name = p_name FOR UPDATE;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    now_ms := leasehold.clock_1();
    before := h;
    SELECT c.* INTO r FROM leasehold.claims c
    WHERE c.name = p_name AND c.held > 0 AND c.token = p_token AND coalesce(c.expires + c.lock_delay > now_ms, true);
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    DELETE FROM leasehold.claims c WHERE c.name = p_name AND c.id = r.id;
    h.held := h.held - r.held;
    h.claims := h.claims - 1;
    h.waiting := h.waiting - (r.held < r.wanted)::integer;
    -- A quorum's token is not of the sequence, and may be further ahead than that may go. number_1 sets the sequence a
    -- million further than asked for and refuses to pass the ceiling, so twice that is left.
    PERFORM leasehold.number_1(least(p_token, leasehold.ceiling_1() - 2000000));
    IF h.agreed > 0 THEN
        -- A quorum that has not heard of it on a majority must not claim it again here.
        h.agreed := h.agreed + 1;
    END IF;
    ended := ARRAY[r.inbox];
    IF r.count IS NOT NULL THEN
        -- A late copy of the request that set it would set it again, for ever.
        ready := leasehold.refuse_1(r.id, now_ms);
        -- Who waits behind a latch waits for it to open, which it never will.
        WITH dead AS (
            DELETE FROM leasehold.claims c WHERE c.name = p_name AND c.held = 0 RETURNING c.inbox
        )
        SELECT ended || coalesce(array_agg(d.inbox), '{}'), count(*) INTO ended, rows FROM dead d;
        h.claims := h.claims - rows;
        h.waiting := h.waiting - rows;
    END IF;
    FOR inbox IN SELECT DISTINCT e FROM unnest(ended) AS e LOOP
        PERFORM leasehold.tell_1(inbox, 0, 0, 0, p_name);
    END LOOP;
    h := leasehold.catch_up_1(h, now_ms, 0);
    ready := leasehold.close_1(before, h, now_ms);
    RETURN true;
END $$;
