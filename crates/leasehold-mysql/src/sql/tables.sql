-- What is stored. Times are milliseconds since 1970 by the database's clock; 4611686018427387904 (2^62) is never.
-- Names are bytes, because everything else folds case, ignores spaces at the end, or is too long for an index.
CREATE TABLE IF NOT EXISTS leasehold_store (
    format INT NOT NULL PRIMARY KEY,
    born   BIGINT NOT NULL
) ENGINE = InnoDB;

-- One row per lock in use. Every operation on a lock takes this row first, and reads everything else after that.
CREATE TABLE IF NOT EXISTS leasehold_keys (
    name         VARBINARY(1024) NOT NULL PRIMARY KEY,
    declared     BIGINT NOT NULL,    -- the limit that every claim must declare; 0 while the row is only being made
    effective    BIGINT NOT NULL,    -- the limit in force
    held         BIGINT NOT NULL,    -- units held by all claims
    claims       BIGINT NOT NULL,
    waiting      BIGINT NOT NULL,    -- how many of them wait
    quiet_until  BIGINT NOT NULL,    -- no holder's units come free before
    agreed       BIGINT NOT NULL,    -- the last token that a quorum agreed on
    agreed_until BIGINT NOT NULL     -- and until when it is remembered
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

-- One row per claim. The id is its owner's secret: who reads it can release the lock.
CREATE TABLE IF NOT EXISTS leasehold_claims (
    name       VARBINARY(1024) NOT NULL,
    id         BINARY(16) NOT NULL,
    seat       BIGINT NOT NULL,
    token      BIGINT NOT NULL,
    held       BIGINT NOT NULL,
    wanted     BIGINT NOT NULL,      -- more than held while it waits
    at_least   BIGINT NOT NULL,      -- the fewest units it is content with
    since      BIGINT NOT NULL,
    lease      BIGINT,
    patience   BIGINT NOT NULL,
    expires    BIGINT,               -- null: never
    lock_delay BIGINT NOT NULL,
    inbox      BIGINT NOT NULL,
    label      BLOB NOT NULL,
    value      LONGBLOB NOT NULL,
    count      BIGINT,
    given      LONGBLOB NOT NULL,    -- 8 bytes each
    asked      TINYINT NOT NULL,
    turn       BIGINT,               -- its rank in the queue while it waits
    PRIMARY KEY (name, id),
    KEY queue (name, turn)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

-- mode=rowlock: one row per lock in use, locked by who holds it.
CREATE TABLE IF NOT EXISTS leasehold_rows (
    name VARBINARY(1024) NOT NULL PRIMARY KEY
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

-- Ids whose claim was given up before it was answered, and may still be on the way.
CREATE TABLE IF NOT EXISTS leasehold_refusals (
    id    BINARY(16) NOT NULL PRIMARY KEY,
    until BIGINT NOT NULL
) ENGINE = InnoDB;

-- Seats and tokens: each operation draws once and may use the numbers up to the next. It starts at the time in
-- microseconds, so that numbers rise even when somebody drops all this and it is made again, unless there were more
-- than sixty thousand operations a second.
-- MySQL has no sequences: there it is the counter of a table that never has rows, each of whose numbers stands for sixteen.
SET @leasehold_numbers = CONCAT(
    /*M!100600 'CREATE SEQUENCE IF NOT EXISTS leasehold_numbers START WITH ',
    TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)), ' INCREMENT BY 16 ENGINE = InnoDB' */
    /*!80000 'CREATE TABLE IF NOT EXISTS leasehold_numbers (number BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY) ',
    'ENGINE = InnoDB AUTO_INCREMENT = ', TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) DIV 16 */
);
PREPARE leasehold_numbers FROM @leasehold_numbers;
EXECUTE leasehold_numbers;
DEALLOCATE PREPARE leasehold_numbers;

-- For people. A temporary table, so that a reader cannot lock the rows below it: MariaDB asks for no more than SELECT for that.
CREATE OR REPLACE ALGORITHM = TEMPTABLE VIEW leasehold_locks AS
SELECT CONVERT(c.name USING utf8mb4) AS name,
       CASE WHEN c.held = c.wanted THEN 'holds' WHEN c.held > 0 THEN 'holds, wants more' ELSE 'waits' END AS state,
       c.held AS units,
       k.effective AS of_units,
       NULLIF(c.token, 0) AS token,
       CONVERT(c.label USING utf8mb4) AS label,
       FROM_UNIXTIME(c.since / 1000) AS since,
       FROM_UNIXTIME(c.expires / 1000) AS expires
FROM leasehold_claims c JOIN leasehold_keys k USING (name)
ORDER BY c.name, c.held = 0, c.seat;

INSERT IGNORE INTO leasehold_store (format, born)
VALUES (1, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000);
