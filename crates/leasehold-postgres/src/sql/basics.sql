-- What every function needs. The number at the end of a name is that of the translation: a release that changes a
-- function raises it, so that two releases can work side by side.
CREATE OR REPLACE FUNCTION leasehold.clock_1() RETURNS bigint LANGUAGE sql VOLATILE AS $$
    SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint
$$;

-- begin: refuses to work where it would be wrong, before anything is read. It is called by an assignment, as all that is
-- called often: that costs a tenth of PERFORM.
CREATE OR REPLACE FUNCTION leasehold.begin_1() RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    -- With one snapshot for all statements, who waited for a row would decide by what was there before.
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'leasehold needs READ COMMITTED, this is %', upper(current_setting('transaction_isolation'))
            USING ERRCODE = 'LH001';
    END IF;
    -- A token that was handed out must survive a crash.
    IF current_setting('synchronous_commit') = 'off' THEN
        PERFORM set_config('synchronous_commit', 'on', true);
    END IF;
    RETURN true;
END $$;

-- forget: a crash of the server in the next moment may undo this transaction, which therefore does not wait for the disk.
CREATE OR REPLACE FUNCTION leasehold.forget_1() RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    RETURN set_config('synchronous_commit', 'off', true) IS NOT NULL;
END $$;

-- leap: numbers go on far above all that were drawn, durably. Whoever leaps before it draws anything need not wait for the disk
-- after each draw: a crash that forgets the last draws ends all sessions, and the next one leaps over them.
CREATE OR REPLACE FUNCTION leasehold.leap_1() RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    PERFORM leasehold.begin_1();
    -- One at a time: the slower of two would set it back.
    PERFORM pg_advisory_xact_lock('leasehold.numbers'::regclass::oid::bigint);
    PERFORM setval('leasehold.numbers', nextval('leasehold.numbers') + 1000000000);
    RETURN true;
END $$;

-- greet: says which format is stored. A database on another timeline may have forgotten its last moments (a standby
-- took over, a backup was restored): numbers leap over all that it may have drawn, and its memory begins now.
CREATE OR REPLACE FUNCTION leasehold.greet_1() RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
    here text := substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8);
    stored integer;
BEGIN
    IF EXISTS (SELECT FROM leasehold.store s WHERE s.timeline <> here) THEN
        PERFORM leasehold.begin_1();
        UPDATE leasehold.store s SET timeline = here, born = leasehold.clock_1() WHERE s.timeline <> here;
        IF FOUND THEN
            PERFORM leasehold.leap_1();
        END IF;
    END IF;
    SELECT s.format INTO stored FROM leasehold.store s;
    RETURN stored;
END $$;

-- number: the next number, above p_above. Called when the lock's row is ours, so that tokens rise in the order of grants.
CREATE OR REPLACE FUNCTION leasehold.number_1(p_above bigint) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    drawn bigint := nextval('leasehold.numbers');
BEGIN
    WHILE drawn <= p_above LOOP
        IF p_above - drawn > 1000 THEN
            -- Others go on drawing while the sequence is set. It is set a million further than asked for, or they could
            -- pass it in between and it would be set back; and by one at a time.
            PERFORM pg_advisory_xact_lock('leasehold.numbers'::regclass::oid::bigint);
            drawn := nextval('leasehold.numbers');
            IF p_above - drawn > 1000 THEN
                PERFORM setval('leasehold.numbers', p_above + 1000000);
            END IF;
        END IF;
        drawn := nextval('leasehold.numbers');
    END LOOP;
    RETURN drawn;
END $$;

-- tell: what a client hears, when this commits. Zeros: look at the lock.
CREATE OR REPLACE FUNCTION leasehold.tell_1(p_inbox bigint, p_seat bigint, p_token bigint, p_units bigint, p_name text)
RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    told boolean;
BEGIN
    told := pg_notify('leasehold_' || to_hex(p_inbox), concat_ws(' ', p_seat, p_token, p_units, p_name)) IS NULL;
END $$;
