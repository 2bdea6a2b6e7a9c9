-- is_in_use: whether anybody is on the lock, or its limit was changed.
CREATE OR REPLACE FUNCTION leasehold.is_in_use_1(h leasehold.keys, p_now bigint) RETURNS boolean LANGUAGE sql VOLATILE AS $$
    SELECT h.effective <> h.declared OR EXISTS (
        SELECT FROM leasehold.claims c WHERE c.name = h.name AND (
            c.held > 0 AND coalesce(c.expires + c.lock_delay > p_now, true)
            OR c.held < c.wanted AND coalesce(c.expires > p_now, true)))
$$;

-- enter: the lock as a claim with this limit finds it. If it was another one, everybody on the lock is over.
CREATE OR REPLACE FUNCTION leasehold.enter_1(h leasehold.keys, p_limit bigint, p_now bigint) RETURNS leasehold.keys
LANGUAGE plpgsql AS $$
BEGIN
    IF h.declared <> p_limit THEN
        PERFORM leasehold.refuse_1(c.id, p_now) FROM leasehold.claims c
        WHERE c.name = h.name AND c.held > 0 AND c.count IS NOT NULL;
        DELETE FROM leasehold.claims c WHERE c.name = h.name;
        h.declared := p_limit;
        h.effective := p_limit;
        h.held := 0;
        h.claims := 0;
        h.waiting := 0;
        h.quiet_until := 4611686018427387904;
    END IF;
    RETURN h;
END $$;

-- ownerless: what a claim is called that nobody owns.
CREATE OR REPLACE FUNCTION leasehold.ownerless_1(p_seat bigint) RETURNS bytea LANGUAGE sql IMMUTABLE AS $$
    SELECT '\x0000000000000000'::bytea || int8send(p_seat)
$$;
