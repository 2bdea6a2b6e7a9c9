//! What the program gets, and whom the lock keeps out.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;

use rustix::process::Signal;

use super::util::{Place, code, eventually, finish, text};

#[test]
fn stdin_stdout_and_stderr_are_passed_through() {
    let place = Place::new();
    let mut runner = place.run_script("run k", "cat; echo problem >&2");
    runner.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut runner = runner.spawn().unwrap();
    runner.stdin.take().unwrap().write_all(b"a\0b\n").unwrap();
    let output = finish(&mut runner).expect("must end");
    assert_eq!((&output.stdout[..], &output.stderr[..]), (&b"a\0b\n"[..], &b"problem\n"[..]));
}

#[test]
fn no_shell_is_involved() {
    let place = Place::new();
    let output = place.leasehold("run k --").args(["printf", "%s|", "$HOME", "a b", "*"]).output().unwrap();
    assert_eq!(text(&output.stdout), "$HOME|a b|*|");
}

#[test]
fn the_program_gets_key_and_rising_tokens() {
    let place = Place::new();
    let tokens: Vec<u64> = (0..3)
        .map(|_| {
            let output =
                place.run_script("run a/b", "echo $LEASEHOLD_KEY $LEASEHOLD_TOKEN").output().unwrap();
            let (key, token) = text(&output.stdout).trim().split_once(' ').unwrap();
            assert_eq!(key, "a/b");
            token.parse().unwrap()
        })
        .collect();
    assert!(tokens.is_sorted_by(|a, b| a < b), "{tokens:?}");
}

#[test]
fn the_program_leads_a_process_group_of_its_own() {
    let place = Place::new();
    let output = place.run_script("run k", "echo $$; cut -d' ' -f5 /proc/$$/stat").output().unwrap();
    let mut lines = text(&output.stdout).lines();
    assert_eq!(lines.next(), lines.next());
}

#[test]
fn a_waiter_runs_when_the_holder_is_done() {
    let place = Place::new();
    let holder = place.hold_with("run k", "while [ ! -e go ]; do sleep 0.01; done; echo one >>order");
    let mut waiter = place.run_script("run k", "echo two >>order").spawn().unwrap();
    place.wait_for_waiters("k", 1);
    fs::write(place.path("go"), "").unwrap();
    assert_eq!(code(&holder.finish()), 0);
    assert_eq!(code(&finish(&mut waiter).expect("must get its turn")), 0);
    assert_eq!(fs::read_to_string(place.path("order")).unwrap(), "one\ntwo\n");
}

#[test]
fn different_keys_do_not_meet() {
    let place = Place::new();
    let _holder = place.hold("run a");
    place.expect("run --try b -- true", 0);
}

#[test]
fn permits_are_counted() {
    let place = Place::new();
    let _two = place.hold("run --permits 2/3 k");
    place.expect("run --try --permits 2/3 k -- true", 75);
    place.expect("run --try --permits 1/3 k -- true", 0);
}

#[test]
fn shared_runs_share_and_keep_exclusive_ones_out() {
    let place = Place::new();
    let _reader = place.hold("run --shared k");
    place.expect("run --try --shared k -- true", 0);
    place.expect("run --try k -- true", 75);
}

#[test]
fn an_exclusive_run_keeps_shared_ones_out() {
    let place = Place::new();
    let holder = place.hold("run k");
    place.expect("run --try --shared k -- true", 75);
    place.expect("run --wait 500ms --shared k -- true", 75);
    let mut reader = place.leasehold("run --shared k -- true").spawn().unwrap();
    holder.signal(Signal::TERM);
    holder.finish();
    assert_eq!(code(&finish(&mut reader).expect("must get in")), 0);
}

#[test]
fn an_exclusive_run_that_waits_for_readers_gets_its_turn() {
    let place = Place::new();
    let reader = place.hold("run --shared k");
    let mut writer = place.leasehold("run k -- true").spawn().unwrap();
    place.wait_for_waiters("k", 1);
    reader.signal(Signal::TERM);
    reader.finish();
    assert_eq!(code(&finish(&mut writer).expect("must get in")), 0);
}

#[test]
fn a_pipe_ends_with_the_program() {
    let place = Place::new();
    let mut runner = place.leasehold("run k -- echo hello").stdout(Stdio::piped()).spawn().unwrap();
    // `finish` reads to the end of the pipe: a guardian that held it open would keep us here.
    let output = finish(&mut runner).expect("must end");
    assert_eq!(text(&output.stdout), "hello\n");
}

#[test]
fn nothing_is_left_after_a_run() {
    let place = Place::new();
    let output = place.run_script("run k", "echo $PPID").output().unwrap();
    let runner = text(&output.stdout).trim().to_owned();
    let children_of = |parent: &str| {
        let processes = fs::read_dir("/proc").unwrap().flatten();
        let stats = processes.filter_map(|process| fs::read_to_string(process.path().join("stat")).ok());
        let parent = parent.to_owned();
        stats.filter(move |stat| stat.rsplit_once(") ").unwrap().1.split(' ').nth(1) == Some(&parent)).count()
    };
    assert_eq!(children_of(&runner), 0);
    assert_eq!(place.show("k")["holders"].as_array().unwrap().len(), 0);
    assert_eq!(text(&output.stderr), "", "silent without -v");
}

#[test]
fn what_the_program_leaves_running_does_not_keep_the_lock() {
    let place = Place::new();
    let script = "sleep 60 </dev/null >/dev/null 2>&1 & echo $! >left.new; mv left.new left";
    assert_eq!(code(&place.run_script("run k", script).output().unwrap()), 0);
    let left = place.number_in("left");
    place.expect("run --try k -- true", 0);
    assert!(super::util::is_alive(left), "not killed either");
    rustix::process::kill_process(rustix::process::Pid::from_raw(left).unwrap(), Signal::KILL).unwrap();
}

#[test]
fn verbose_tells_store_and_lock() {
    let place = Place::new();
    let output = place.leasehold("run -v k -- true").output().unwrap();
    let lines: Vec<_> = text(&output.stderr).lines().collect();
    assert_eq!(lines[0], format!("leasehold: store {}", place.url()));
    assert!(lines[1].starts_with("leasehold: acquired \"k\", token "));
    assert_eq!(lines[2], "leasehold: released \"k\"");
}

#[test]
fn without_a_store_the_users_state_directory_is_used() {
    let place = Place::new();
    let mut command = place.leasehold("run -v k -- true");
    let output = command.env_remove("LEASEHOLD_STORE").output().unwrap();
    assert_eq!(code(&output), 0);
    let expected = format!("leasehold: store sqlite://{}", place.path("state/leasehold/locks.db").display());
    assert_eq!(text(&output.stderr).lines().next(), Some(&expected[..]));
    for directory in ["state", "state/leasehold"] {
        let mode = fs::metadata(place.path(directory)).unwrap().permissions().mode();
        assert_eq!(mode & 0o7777, 0o700, "{directory}");
    }
    assert!(place.path("state/leasehold/locks.db").exists());
}

#[test]
fn the_label_is_what_others_see() {
    let place = Place::new();
    let _holder = place.hold("run --label nightly k");
    eventually("the label", || (place.show("k")["holders"][0]["label"] == "nightly").then_some(()));
}

#[test]
fn a_setting_that_weakens_a_promise_is_a_warning_before_the_program_runs() {
    let place = Place::new();
    std::fs::write(place.path("locks.db"), "").unwrap();
    std::fs::set_permissions(place.path("locks.db"), std::fs::Permissions::from_mode(0o666)).unwrap();
    let output = place.run_script("run k", "echo program >&2").output().unwrap();
    let said: Vec<&str> = text(&output.stderr).lines().collect();
    assert_eq!((code(&output), said.len()), (0, 2), "{output:?}");
    assert!(said[0].starts_with("leasehold: warning: mode is 0666: "), "{output:?}");
    assert_eq!(said[1], "program");

    let output = place.run_script("run --json k", "true").output().unwrap();
    let first = text(&output.stderr).lines().next().unwrap();
    let first: serde_json::Value = serde_json::from_str(first).unwrap();
    assert_eq!((&first["event"], &first["setting"]), (&"warning".into(), &"mode".into()), "{output:?}");
}

#[test]
fn a_reader_of_stderr_that_stands_still_does_not_stop_the_renewals() {
    let place = Place::new();
    let (_reader, mut full) = std::io::pipe().unwrap();
    rustix::io::ioctl_fionbio(&full, true).unwrap();
    while std::io::Write::write(&mut full, &[b'x'; 4096]).is_ok() {}
    while std::io::Write::write(&mut full, b"x").is_ok() {}
    rustix::io::ioctl_fionbio(&full, false).unwrap();
    let mut run = place.run_script("run --json --lease 1s k", "sleep 2; echo >ran");
    let mut runner = run.stderr(full).spawn().unwrap();
    place.wait_for_file("ran");
    assert_eq!(code(&finish(&mut runner).expect("must end")), 0);
}
