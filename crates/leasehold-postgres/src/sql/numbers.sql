-- The sequence of seats and tokens, and the rows that there is one of. A drawn number is never drawn again, even if its
-- transaction fails.
--
-- A sequence without a record starts at the ceiling, above all that an earlier one with this name can have drawn.
DO $$
BEGIN
    IF to_regclass('leasehold.numbers') IS NULL THEN
        CREATE SEQUENCE leasehold.numbers;
        PERFORM setval('leasehold.numbers', leasehold.ceiling_1());
        DELETE FROM leasehold.awake;
        INSERT INTO leasehold.awake (start) VALUES (leasehold.start_1());
    END IF;
    IF NOT EXISTS (SELECT FROM leasehold.store) THEN
        INSERT INTO leasehold.store (format, born, lineage) VALUES (2, leasehold.clock_1(), leasehold.lineage_1());
    END IF;
    IF NOT EXISTS (SELECT FROM leasehold.secret) THEN
        -- Two random numbers of 122 bits each, from the server's strong source.
        INSERT INTO leasehold.secret (secret)
        SELECT sha256(uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid()));
    END IF;
END $$;
