-- sweep: lets time pass for up to p_many locks after p_after that perhaps nobody will ask about again, and forgets
-- refusals that are over. Returns where to go on, null at the end.
CREATE OR REPLACE FUNCTION leasehold.sweep_1(p_after text, p_many integer) RETURNS text
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    ready boolean := leasehold.begin_1();
    now_ms bigint := leasehold.clock_1();
    seen integer := 0;
    k leasehold.keys;
    before leasehold.keys;
    h leasehold.keys;
BEGIN
    -- Waits for nobody: it has all the time in the world.
    DELETE FROM leasehold.refusals f WHERE f.id IN (
        SELECT g.id FROM leasehold.refusals g WHERE g.until <= now_ms FOR UPDATE SKIP LOCKED);
    FOR k IN SELECT * FROM leasehold.keys a WHERE a.name > p_after ORDER BY a.name LIMIT p_many LOOP
        seen := seen + 1;
        IF k.quiet_until <= now_ms THEN
            SELECT a.* INTO h FROM leasehold.keys a WHERE a.name = k.name FOR UPDATE SKIP LOCKED;
            IF FOUND THEN
                before := h;
                h := leasehold.catch_up_1(h, leasehold.clock_1(), 0);
                ready := leasehold.close_1(before, h, leasehold.clock_1());
            END IF;
        END IF;
    END LOOP;
    RETURN CASE WHEN seen = p_many THEN k.name END;
END $$;
