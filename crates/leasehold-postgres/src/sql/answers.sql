-- What is answered. Of these, said is granted, waiting, busy, gone, left, done, or why not: limit, young, units,
-- uncounted, heir. A lease is what is left of it: -1 for one without end, null when this request did not extend it.
DO $$
BEGIN
    IF to_regtype('leasehold.answer_1') IS NULL THEN
        CREATE TYPE leasehold.answer_1 AS (
            said text, seat bigint, token bigint, units bigint, lease bigint, asked boolean, ahead bigint, look_in bigint
        );
    END IF;
END $$;

CREATE OR REPLACE FUNCTION leasehold.plain_1(p_said text, p_units bigint DEFAULT NULL) RETURNS leasehold.answer_1
LANGUAGE sql IMMUTABLE AS $$
    SELECT ROW(p_said, NULL, NULL, p_units, NULL, NULL, NULL, NULL)::leasehold.answer_1
$$;

CREATE OR REPLACE FUNCTION leasehold.left_1(p_expires bigint, p_now bigint, p_extended boolean) RETURNS bigint
LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN NOT p_extended THEN NULL WHEN p_expires IS NULL THEN -1 ELSE greatest(p_expires - p_now, 0) END
$$;

CREATE OR REPLACE FUNCTION leasehold.granted_1(r leasehold.claims, p_now bigint, p_extended boolean)
RETURNS leasehold.answer_1 LANGUAGE sql IMMUTABLE AS $$
    SELECT ROW('granted', r.seat, r.token, r.held, leasehold.left_1(r.expires, p_now, p_extended), r.asked, NULL, NULL)
        ::leasehold.answer_1
$$;

CREATE OR REPLACE FUNCTION leasehold.waiting_1(h leasehold.keys, r leasehold.claims, p_now bigint, p_extended boolean)
RETURNS leasehold.answer_1 LANGUAGE plpgsql AS $$
DECLARE
    before bigint;
    end_in bigint := greatest(h.quiet_until - p_now, 0);
    look_in bigint := r.patience / 3;
BEGIN
    SELECT count(*) INTO before FROM (
        SELECT FROM leasehold.claims c
        WHERE c.name = h.name AND c.held < c.wanted AND (c.held = 0, c.seat) < (r.held = 0, r.seat) LIMIT 64
    ) AS ahead;
    IF before = 0 THEN
        look_in := least(end_in, 1000);
    ELSIF end_in = 0 THEN
        -- The last walk was cut short: somebody must go on with it.
        look_in := 0;
    END IF;
    RETURN ROW('waiting', r.seat, NULL, r.held, leasehold.left_1(r.expires, p_now, p_extended), NULL, before, look_in)
        ::leasehold.answer_1;
END $$;

CREATE OR REPLACE FUNCTION leasehold.standing_1(h leasehold.keys, p_id bytea, p_now bigint, p_extended boolean)
RETURNS leasehold.answer_1 LANGUAGE plpgsql AS $$
DECLARE
    r leasehold.claims;
BEGIN
    SELECT c.* INTO r FROM leasehold.claims c WHERE c.name = h.name AND c.id = p_id;
    IF NOT FOUND THEN
        RETURN leasehold.plain_1('gone');
    ELSIF r.held < r.wanted THEN
        RETURN leasehold.waiting_1(h, r, p_now, p_extended);
    END IF;
    RETURN leasehold.granted_1(r, p_now, p_extended);
END $$;
