-- What every function needs. The number at the end of a name is that of the translation: a release that changes a
-- function raises it, so that two releases can work side by side.
CREATE OR REPLACE FUNCTION leasehold.clock_1() RETURNS bigint LANGUAGE sql VOLATILE AS $$
    SELECT floor(extract(epoch FROM clock_timestamp()) * 1000.0)::bigint
$$;

-- ceiling: no number is ever set above this: 60 seconds ahead of the clock, in microseconds. Draws are slower than the
-- clock, so every number that was ever drawn is below the ceiling of a later moment, unless the clock was set back.
CREATE OR REPLACE FUNCTION leasehold.ceiling_1() RETURNS bigint LANGUAGE sql VOLATILE AS $$
    SELECT floor(extract(epoch FROM clock_timestamp()) * 1000000.0)::bigint + 60000000
$$;

-- begin: refuses to work where it would be wrong, before anything is read. It is called by an assignment, as all that is
-- called often: that costs a tenth of PERFORM.
CREATE OR REPLACE FUNCTION leasehold.begin_1() RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    -- With one snapshot for all statements, a claim that waited for a row would decide by what was there before.
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'leasehold needs READ COMMITTED, this is %', upper(current_setting('transaction_isolation'))
            USING ERRCODE = 'LH001';
    END IF;
    -- A token that was handed out must survive a crash, and be on the synchronous standby if there is one.
    IF current_setting('synchronous_commit') IN ('off', 'local') THEN
        PERFORM set_config('synchronous_commit', 'on', true);
    END IF;
    -- Once per session, and when a restored dump has replaced the sequence under it (as in follow_1, which would cost a
    -- call more). A pooler gives a session that was not greeted, perhaps on another server than the last one.
    IF current_setting('leasehold_store.numbers', true) IS DISTINCT FROM 'leasehold.numbers'::regclass::oid::text THEN
        RETURN leasehold.awake_1();
    END IF;
    RETURN true;
END $$;

-- forget: a crash of the server in the next moment may undo this transaction, which therefore does not wait for the disk.
CREATE OR REPLACE FUNCTION leasehold.forget_1() RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    RETURN set_config('synchronous_commit', 'off', true) IS NOT NULL;
END $$;

-- lineage: which copy of the data this is. It changes when a standby takes over and when a dump is restored: then the
-- store may have forgotten claims.
CREATE OR REPLACE FUNCTION leasehold.lineage_1() RETURNS text LANGUAGE sql VOLATILE AS $$
    SELECT s.system_identifier::text || ' ' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8) || ' '
        || to_regclass('leasehold.numbers')::oid::text
    FROM pg_control_system() s
$$;

-- start: which start of the server this is, and of which copy of the data.
CREATE OR REPLACE FUNCTION leasehold.start_1() RETURNS text LANGUAGE sql VOLATILE AS $$
    SELECT (extract(epoch FROM pg_postmaster_start_time()) * 1000000.0)::bigint::text || ' ' || leasehold.lineage_1()
$$;

-- alone: waits until no other session sets the sequence, and keeps others from it until this transaction ends. By a row
-- that only lock clients may lock: every role of the database can hold an advisory lock for ever.
CREATE OR REPLACE FUNCTION leasehold.alone_1() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM FROM leasehold.store FOR UPDATE;
END $$;

-- leap: sets the sequence to the ceiling, which is above every number that was drawn before. Returns 0, or how many
-- microseconds are missing until it may: a crash can forget the last draws, so a million numbers must fit in between.
-- That is also what others can draw while this sets the sequence.
CREATE OR REPLACE FUNCTION leasehold.leap_1() RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    ceiling bigint := leasehold.ceiling_1();
    drawn bigint := nextval('leasehold.numbers');
BEGIN
    IF drawn + 1000000 > ceiling THEN
        RETURN drawn + 1000000 - ceiling;
    END IF;
    PERFORM setval('leasehold.numbers', ceiling);
    RETURN 0;
END $$;

-- awake: makes the sequence leap, durably, when the server may have forgotten numbers since the last leap: it was started
-- again, a standby took over, a backup or a dump was restored. Session modes rely on this, because their draws do not wait
-- for the disk.
CREATE OR REPLACE FUNCTION leasehold.awake_1() RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    here text := leasehold.start_1();
    ready boolean;
    missing bigint;
BEGIN
    IF NOT EXISTS (SELECT FROM leasehold.awake a WHERE a.start = here) THEN
        PERFORM set_config('synchronous_commit', 'on', true);
        -- One session at a time: the slower of two would set the sequence back.
        PERFORM leasehold.alone_1();
        IF NOT EXISTS (SELECT FROM leasehold.awake a WHERE a.start = here) THEN
            LOOP
                missing := leasehold.leap_1();
                EXIT WHEN missing = 0;
                -- A leap soon after another one waits a moment. Anything else is a clock that was set back.
                IF missing > 1100000 THEN
                    RAISE EXCEPTION 'the tokens are % s ahead of the server''s clock', missing / 1000000 + 60
                        USING ERRCODE = 'LH002';
                END IF;
                PERFORM pg_sleep(missing / 1000000.0);
            END LOOP;
            DELETE FROM leasehold.awake;
            INSERT INTO leasehold.awake (start) VALUES (here);
            -- The memory of another copy begins now.
            UPDATE leasehold.store s SET lineage = leasehold.lineage_1(), born = leasehold.clock_1()
            WHERE s.lineage <> leasehold.lineage_1();
        END IF;
    END IF;
    ready := set_config('leasehold_store.numbers', 'leasehold.numbers'::regclass::oid::text, false) IS NOT NULL;
    RETURN ready;
END $$;

-- greet: what a new connection needs to know: which format is stored, and what proves a notification.
CREATE OR REPLACE FUNCTION leasehold.greet_1(OUT format integer, OUT secret bytea)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    ready boolean := leasehold.awake_1();
BEGIN
    SELECT s.format, (SELECT p.secret FROM leasehold.secret p) INTO format, secret FROM leasehold.store s;
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
            PERFORM leasehold.alone_1();
            drawn := nextval('leasehold.numbers');
            IF p_above + 1000000 > leasehold.ceiling_1() THEN
                RAISE EXCEPTION 'a token above % is too far ahead of the server''s clock', p_above USING ERRCODE = 'LH002';
            ELSIF p_above - drawn > 1000 THEN
                PERFORM setval('leasehold.numbers', p_above + 1000000);
            END IF;
        END IF;
        drawn := nextval('leasehold.numbers');
    END LOOP;
    RETURN drawn;
END $$;

-- tell: what a client hears, when this commits. Zeros: look at the lock. The last word proves that a lock client wrote it,
-- for this channel; a message without it is only a reason to look.
CREATE OR REPLACE FUNCTION leasehold.tell_1(p_inbox bigint, p_seat bigint, p_token bigint, p_units bigint, p_name text)
RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    channel text := 'leasehold_' || to_hex(p_inbox);
    body text := p_seat::text || ' ' || p_token::text || ' ' || p_units::text || ' ' || p_name;
    proof text;
    told boolean;
BEGIN
    SELECT encode(sha256(s.secret || convert_to(channel || ' ' || body, 'UTF8') || s.secret), 'hex') INTO proof
    FROM leasehold.secret s;
    told := pg_notify(channel, body || ' ' || coalesce(proof, '-')) IS NULL;
END $$;
