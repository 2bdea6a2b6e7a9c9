-- What is stored. Times are milliseconds since 1970 by the database's clock; 4611686018427387904 (2^62) is never.
-- Names and labels are as given, but for \ (written \\) and the character 0 (written \0), which PostgreSQL cannot store.
CREATE SCHEMA IF NOT EXISTS leasehold;

-- Tables of another format stay as they are.
DO $$
DECLARE
    found integer;
BEGIN
    IF to_regclass('leasehold.store') IS NOT NULL THEN
        SELECT s.format INTO found FROM leasehold.store s;
        IF found <> 2 THEN
            RAISE EXCEPTION 'the lock tables have format %, this release needs 2: use another schema', found
                USING ERRCODE = 'LH003';
        END IF;
    END IF;
END $$;

-- One row: the version of this format, since when the store has forgotten nothing, and which copy of the data that was
-- (see lineage_1).
CREATE TABLE IF NOT EXISTS leasehold.store (
    format  integer NOT NULL,
    born    bigint  NOT NULL,
    lineage text    NOT NULL
);

-- One row: what proves that a notification comes from these functions. A role that may read it can forge promotions, so
-- only lock clients may.
CREATE TABLE IF NOT EXISTS leasehold.secret (
    secret bytea NOT NULL
);
REVOKE ALL ON leasehold.secret FROM PUBLIC;

-- One row: the start of the server that the sequence was last set for (see awake_1). Unlogged: a crash, a standby that
-- takes over and a restored base backup all leave it empty.
CREATE UNLOGGED TABLE IF NOT EXISTS leasehold.awake (
    start text NOT NULL
);

-- One row per lock in use. Every operation on a lock locks its row first, and reads everything else after that.
CREATE TABLE IF NOT EXISTS leasehold.keys (
    name         text COLLATE "C" PRIMARY KEY,
    declared     bigint NOT NULL,              -- the limit that every claim must declare
    effective    bigint NOT NULL,              -- the limit in force
    held         bigint NOT NULL,              -- units held by all claims
    claims       bigint NOT NULL,
    waiting      bigint NOT NULL,              -- how many of them wait
    quiet_until  bigint NOT NULL,              -- no holder's units come free before
    agreed       bigint NOT NULL DEFAULT 0,    -- the last token that a quorum agreed on
    agreed_until bigint NOT NULL DEFAULT 0     -- and until when it is remembered
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);

-- One row per claim. The id is its owner's secret: who reads it can release the lock.
CREATE TABLE IF NOT EXISTS leasehold.claims (
    name       text COLLATE "C" NOT NULL,
    id         bytea   NOT NULL,
    seat       bigint  NOT NULL,
    token      bigint  NOT NULL,
    held       bigint  NOT NULL,
    wanted     bigint  NOT NULL,               -- more than held while it waits
    at_least   bigint  NOT NULL,               -- the fewest units it is content with
    since      bigint  NOT NULL,
    lease      bigint,
    patience   bigint  NOT NULL,
    expires    bigint,                         -- null: never
    lock_delay bigint  NOT NULL,
    inbox      bigint  NOT NULL,               -- whose channel is told: leasehold_ and this, in hexadecimal
    label      text    NOT NULL,
    value      bytea   NOT NULL,
    count      bigint,
    given      bigint[] NOT NULL,
    asked      boolean NOT NULL,
    PRIMARY KEY (name, id)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);

-- Partial: who holds without waiting is not in it, so that an uncontended claim does not pay for it.
CREATE INDEX IF NOT EXISTS queue ON leasehold.claims (name, (held = 0), seat) WHERE held < wanted;

-- mode=rowlock: one row per lock in use, locked by who holds it. Unlogged: locks end with the server, and so may these.
CREATE UNLOGGED TABLE IF NOT EXISTS leasehold.rows (
    name text COLLATE "C" PRIMARY KEY
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);

-- Ids whose claim was given up before it was answered, and may still be on the way.
CREATE TABLE IF NOT EXISTS leasehold.refusals (
    id    bytea PRIMARY KEY,
    until bigint NOT NULL
);

-- For people.
CREATE OR REPLACE VIEW leasehold.locks AS
SELECT c.name,
       CASE WHEN c.held = c.wanted THEN 'holds' WHEN c.held > 0 THEN 'holds, wants more' ELSE 'waits' END AS state,
       c.held AS units,
       k.effective AS of,
       nullif(c.token, 0) AS token,
       c.label,
       to_timestamp(c.since / 1000.0) AS since,
       to_timestamp(c.expires / 1000.0) AS expires
FROM leasehold.claims c JOIN leasehold.keys k USING (name)
ORDER BY c.name, c.held = 0, c.seat;
