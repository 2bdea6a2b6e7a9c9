//! `leasehold store`, on a real database.

use std::process::Command;

use leasehold_servers::postgres::Postgres;

fn leasehold(store: &str, words: &[&str]) -> (i32, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_leasehold"));
    let output = command.args(words).env("LEASEHOLD_STORE", store).output().unwrap();
    let said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    // The server of the tests syncs nothing, and the command warns of that.
    let said = said.split_inclusive('\n').filter(|line| !line.contains("warning: fsync is off")).collect();
    (output.status.code().unwrap(), said)
}

#[test]
fn a_database_that_was_made_by_the_printed_statements_can_be_used_and_cleaned() {
    let server = Postgres::start();
    let url = format!("{}?schema=my_locks", server.url());
    let (code, sql) = leasehold(&url, &["store", "init", "--print-sql"]);
    assert_eq!(code, 0, "{sql}");
    assert_eq!(server.sql("SELECT to_regnamespace('my_locks')"), "");
    server.sql(&sql);
    assert_eq!(leasehold(&url, &["store", "init"]).0, 0);
    assert_eq!(leasehold(&url, &["run", "orders/42", "--", "echo", "held"]), (0, "held\n".to_owned()));
    assert_eq!(leasehold(&url, &["store", "vacuum"]), (0, String::new()));
}

#[test]
fn a_store_without_tables_says_so() {
    let (code, said) = leasehold("redis://127.0.0.1:1", &["store", "vacuum"]);
    assert_eq!(code, 64, "{said}");
    assert!(said.contains("only databases"), "{said}");
}
