//! Which server is run: Debian's MariaDB, or what `LEASEHOLD_MARIADBD` names, which may be MySQL.

use std::ffi::OsString;
use std::process::Command;
use std::sync::OnceLock;

/// Whose server it is. They are set up by different programs, and call some settings differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// MariaDB.
    MariaDb,
    /// MySQL.
    MySql,
}

impl Kind {
    /// Of the server that is run here.
    ///
    /// # Panics
    /// When it cannot be run.
    pub fn tested() -> Self {
        static KIND: OnceLock<Kind> = OnceLock::new();
        *KIND.get_or_init(|| {
            let said = Command::new(program()).arg("--version").output();
            let said = said.unwrap_or_else(|e| {
                panic!("{:?} cannot be run: {e}; `cargo xtask test` installs it", program())
            });
            Self::saying(&String::from_utf8_lossy(&said.stdout))
        })
    }

    fn saying(version: &str) -> Self {
        if version.contains("MariaDB") { Self::MariaDb } else { Self::MySql }
    }

    /// The words that make the tables which every server needs.
    pub(super) fn install(self) -> Vec<OsString> {
        match self {
            Self::MariaDb => [
                "mariadb-install-db",
                "--no-defaults",
                "--auth-root-authentication-method=normal",
                "--skip-test-db",
                "--innodb-log-file-size=16M",
                "--innodb-buffer-pool-size=32M",
            ]
            .map(OsString::from)
            .to_vec(),
            Self::MySql => {
                let words = ["--no-defaults", "--initialize-insecure", "--innodb-buffer-pool-size=32M"];
                let words = words.iter().chain(self.settings()).map(OsString::from);
                std::iter::once(program()).chain(words).collect()
            }
        }
    }

    /// Settings that it is always run with.
    pub(super) fn settings(self) -> &'static [&'static str] {
        match self {
            Self::MariaDb => &["--innodb-log-file-size=16M"],
            // Only the one port, no TLS where no test asks for it, and no directory of the machine's.
            Self::MySql => &[
                "--innodb-redo-log-capacity=16M",
                "--sync-binlog=0",
                "--mysqlx=OFF",
                "--auto-generate-certs=OFF",
                "--secure-file-priv=NULL",
            ],
        }
    }
}

/// The server: `LEASEHOLD_MARIADBD` can name another one, of another version or kind.
pub(super) fn program() -> OsString {
    std::env::var_os("LEASEHOLD_MARIADBD").unwrap_or_else(|| "/usr/sbin/mariadbd".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_says_whose_it_is() {
        let mariadb = "mariadbd  Ver 10.11.14-MariaDB-0+deb12u2 for debian-linux-gnu on x86_64 (Debian 12)";
        assert_eq!(Kind::saying(mariadb), Kind::MariaDb);
        assert_eq!(Kind::saying("/usr/sbin/mysqld  Ver 9.7.4-2 for Linux on x86_64 ((Debian))"), Kind::MySql);
    }
}
