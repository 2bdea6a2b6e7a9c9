//! What MariaDB and MySQL say differently: numbers from a sequence or from a counter, and how a row is shared.

use crate::sql::NUMBERS;

/// How to talk to this server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Dialect {
    pub(crate) numbers: Numbers,
    pub(crate) server: Server,
}

/// Where numbers come from: what is there counts, not what the server could have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Numbers {
    #[default]
    Sequence,
    /// A table that is always empty, because its counter is all that is wanted.
    Counter,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Server {
    #[default]
    MariaDb,
    MySql,
}

/// Asks for what [`Dialect::new`] wants to know.
pub(crate) const ASK: &str = "SELECT VERSION(), (SELECT table_type FROM information_schema.tables \
                              WHERE table_schema = DATABASE() AND table_name = 'leasehold_numbers')";

impl Dialect {
    /// What the server said of itself and of the numbers.
    pub(crate) fn new(version: &str, numbers: Option<&str>) -> Self {
        let server = if version.contains("MariaDB") { Server::MariaDb } else { Server::MySql };
        let numbers = match numbers {
            Some("SEQUENCE") => Numbers::Sequence,
            _ => Numbers::Counter,
        };
        Self { numbers, server }
    }

    /// Reads with the time: draws a number, which is the first of a few.
    pub(crate) fn draw(self, columns: &str) -> String {
        match self.numbers {
            Numbers::Sequence => format!("SELECT {columns} NEXT VALUE FOR leasehold_numbers"),
            Numbers::Counter => format!(
                "INSERT INTO leasehold_numbers VALUES (NULL); SELECT {columns} LAST_INSERT_ID() * {NUMBERS}; \
                 DELETE FROM leasehold_numbers WHERE number = LAST_INSERT_ID()"
            ),
        }
    }

    /// Sees to it that later numbers are larger than this one. Never back: where they are already, nothing happens.
    pub(crate) fn leap(self, over: u64) -> String {
        match self.numbers {
            Numbers::Sequence => format!("SELECT SETVAL(leasehold_numbers, {over})"),
            Numbers::Counter => {
                let number = over / NUMBERS;
                format!(
                    "INSERT IGNORE INTO leasehold_numbers VALUES ({number}); \
                     DELETE FROM leasehold_numbers WHERE number = {number}"
                )
            }
        }
    }

    /// Locks a row beside others who do the same.
    pub(crate) fn share(self) -> &'static str {
        match self.server {
            Server::MariaDb => "LOCK IN SHARE MODE",
            Server::MySql => "FOR SHARE",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_from_what_is_there() {
        let mariadb = Dialect::new("10.11.19-MariaDB-0+deb12u1", Some("SEQUENCE"));
        assert_eq!(mariadb, Dialect { numbers: Numbers::Sequence, server: Server::MariaDb });
        let mysql = Dialect::new("8.0.36", Some("BASE TABLE"));
        assert_eq!(mysql, Dialect { numbers: Numbers::Counter, server: Server::MySql });
    }
}
