//! The statements: files of their own, for one schema.

use leasehold_core::Result;
use tokio_postgres::types::Type;

use crate::names::check_schema;
use crate::settings;

const TABLES: &str = include_str!("sql/tables.sql");

const FUNCTIONS: &[&str] = &[
    include_str!("sql/basics.sql"),
    include_str!("sql/draw.sql"),
    include_str!("sql/settle.sql"),
    include_str!("sql/answers.sql"),
    include_str!("sql/enter.sql"),
    include_str!("sql/renew.sql"),
    include_str!("sql/claim.sql"),
    include_str!("sql/release.sql"),
    include_str!("sql/many.sql"),
    include_str!("sql/amend.sql"),
    include_str!("sql/evict.sql"),
    include_str!("sql/sweep.sql"),
    // Last, because it calls some of the functions.
    include_str!("sql/numbers.sql"),
];

/// Names without a schema are the server's own: another user's function must not run with our rights. A crash must not forget
/// where the numbers start. And one session at a time makes the tables, because two would fail on each other's. Every role of
/// the database can hold that lock, so the wait for it ends: where two sessions do fail on each other's, the later one finds the
/// tables there.
const ALONE: &str = "SET LOCAL search_path = pg_catalog, pg_temp;
SET LOCAL synchronous_commit = on;
DO $$
DECLARE
    before text := current_setting('lock_timeout');
BEGIN
    PERFORM set_config('lock_timeout', '500ms', true);
    PERFORM pg_advisory_xact_lock(hashtextextended('leasehold.init', 0));
    PERFORM set_config('lock_timeout', before, true);
EXCEPTION WHEN lock_not_available THEN
    NULL;
END $$;\n";

/// The version of what is stored.
pub(crate) const FORMAT: i32 = 2;

/// The statements that make everything a store needs in this schema. They can be run again.
///
/// ```
/// let sql = leasehold_postgres::init_sql("billing_locks")?;
/// assert!(sql.contains("CREATE SCHEMA IF NOT EXISTS \"billing_locks\""));
/// assert!(leasehold_postgres::init_sql("x; DROP TABLE users").is_err());
/// # Ok::<(), leasehold_core::Error>(())
/// ```
///
/// # Errors
/// `Invalid` when that is no name for a schema.
pub fn init_sql(schema: &str) -> Result<String> {
    check_schema(schema)?;
    let mut all = format!("BEGIN;\n{ALONE}\n{TABLES}");
    for file in FUNCTIONS {
        all.push('\n');
        all.push_str(file);
    }
    all.push_str("\nCOMMIT;\n");
    Ok(inside(schema, &all))
}

/// The same statements in another schema.
pub(crate) fn inside(schema: &str, sql: &str) -> String {
    let quoted = format!("\"{schema}\"");
    let sql = sql.replace("SCHEMA IF NOT EXISTS leasehold;", &format!("SCHEMA IF NOT EXISTS {quoted};"));
    sql.replace("leasehold.", &format!("{quoted}."))
}

/// What a store can say to the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    Claim,
    Claims,
    Renew,
    Amend,
    Release,
    Releases,
    Evict,
    Look,
    Names,
    Sweep,
    Advisory,
    RowLock,
}

impl Verb {
    /// All of them, in the order of their numbers.
    pub(crate) const ALL: [Self; 12] = [
        Self::Claim,
        Self::Claims,
        Self::Renew,
        Self::Amend,
        Self::Release,
        Self::Releases,
        Self::Evict,
        Self::Look,
        Self::Names,
        Self::Sweep,
        Self::Advisory,
        Self::RowLock,
    ];

    fn text(self) -> &'static str {
        match self {
            Self::Claim => {
                "SELECT * FROM leasehold.claim_1($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, \
                 $16, $17, $18)"
            }
            Self::Claims => {
                "SELECT * FROM leasehold.claims_1($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, \
                 $16, $17, $18)"
            }
            Self::Renew => "SELECT * FROM leasehold.renew_1($1, $2, $3, $4, $5)",
            Self::Amend => {
                "SELECT * FROM leasehold.amend_1($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, \
                 $15)"
            }
            Self::Release => "SELECT leasehold.release_1($1, $2, $3, $4)",
            Self::Releases => "SELECT * FROM leasehold.releases_1($1, $2, $3, $4)",
            Self::Evict => "SELECT leasehold.evict_1($1, $2)",
            Self::Look => include_str!("sql/look.sql"),
            Self::Names => {
                "SELECT k.name FROM leasehold.keys k WHERE starts_with(k.name, $1) AND k.name > $2 \
                 ORDER BY k.name LIMIT $3"
            }
            Self::Sweep => "SELECT leasehold.sweep_1($1, $2)",
            // Who holds: the number of a session, and whether it shares.
            Self::Advisory => {
                "SELECT l.pid, l.mode = 'ShareLock' FROM pg_locks l WHERE l.locktype = 'advisory' AND l.granted \
                 AND l.objsubid = 1 AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database()) \
                 AND ((l.classid::bigint << 32) | l.objid::bigint) = hashtextextended($1, 0)"
            }
            Self::RowLock => {
                "SELECT a.pid, a.application_name LIKE '% share %' FROM pg_stat_activity a WHERE a.datname = current_database() \
                 AND a.application_name IN ('leasehold row share ' || to_hex(hashtextextended($1, 0)), \
                 'leasehold row update ' || to_hex(hashtextextended($1, 0)))"
            }
        }
    }

    /// The types of its values.
    pub(crate) fn types(self) -> &'static [Type] {
        const N: Type = Type::INT8;
        const B: Type = Type::BYTEA;
        const T: Type = Type::TEXT;
        const F: Type = Type::BOOL;
        const NS: Type = Type::INT8_ARRAY;
        const BS: Type = Type::BYTEA_ARRAY;
        const TS: Type = Type::TEXT_ARRAY;
        const FS: Type = Type::BOOL_ARRAY;
        match self {
            Self::Claim => &[T, B, N, N, N, F, F, N, N, N, N, N, T, B, N, N, N, F],
            Self::Claims => &[TS, BS, NS, NS, NS, FS, FS, NS, NS, NS, NS, NS, TS, BS, NS, NS, NS, FS],
            Self::Renew => &[TS, BS, NS, NS, N],
            Self::Amend => &[T, B, N, F, N, N, T, N, N, N, B, B, N, T, N],
            Self::Release => &[T, B, N, N],
            Self::Releases => &[TS, BS, NS, NS],
            Self::Evict => &[T, N],
            Self::Look => &[TS],
            Self::Names => &[T, T, N],
            Self::Sweep => &[T, Type::INT4],
            Self::Advisory | Self::RowLock => &[T],
        }
    }
}

/// The statements for one schema.
#[derive(Clone, Debug)]
pub(crate) struct Statements {
    texts: [String; 12],
    pub(crate) greet: String,
    pub(crate) secret: String,
    pub(crate) init: String,
}

impl Statements {
    pub(crate) fn new(schema: &str) -> Result<Self> {
        Ok(Self {
            texts: Verb::ALL.map(|verb| inside(schema, verb.text())),
            greet: inside(
                schema,
                &format!("SELECT g.format, g.secret, {} FROM leasehold.greet_1() g", settings::COLUMNS),
            ),
            secret: inside(schema, "SELECT s.secret FROM leasehold.secret s"),
            init: init_sql(schema)?,
        })
    }

    pub(crate) fn text(&self, verb: Verb) -> &str {
        &self.texts[verb as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verbs_are_counted_in_order() {
        for (place, verb) in Verb::ALL.into_iter().enumerate() {
            assert_eq!(verb as usize, place);
            let most = (1..=20).rev().find(|n| verb.text().contains(&format!("${n}"))).unwrap();
            assert_eq!(verb.types().len(), most, "{verb:?}");
        }
    }
}
