-- Numbers for locks that live on a session (mode=advisory, mode=rowlock), which no other function is called for.

-- follow: makes this session use the sequence that is there now. A restored dump replaces it under a session that stays
-- connected. This may lock the row of leasehold.store until the transaction ends, so it must end soon.
CREATE OR REPLACE FUNCTION leasehold.follow_1() RETURNS boolean LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF current_setting('leasehold_store.numbers', true) IS DISTINCT FROM 'leasehold.numbers'::regclass::oid::text THEN
        RETURN leasehold.awake_1();
    END IF;
    RETURN true;
END $$;

-- draw: the next number, if follow_1 has seen the sequence that is there now.
CREATE OR REPLACE FUNCTION leasehold.draw_1() RETURNS bigint LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF current_setting('leasehold_store.numbers', true) IS DISTINCT FROM 'leasehold.numbers'::regclass::oid::text THEN
        RAISE EXCEPTION 'the sequence of tokens was replaced' USING ERRCODE = 'LH004';
    END IF;
    RETURN nextval('leasehold.numbers');
END $$;
