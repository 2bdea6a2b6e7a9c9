//! On a terminal: foreground, Ctrl-C, Ctrl-Z, pipelines.
//!
//! What is typed appears on the screen too, so programs print sums and the tests wait for the result.

use std::process::Command;

use rustix::process::{Pid, Signal, kill_process};

use super::pty::Pty;
use super::util::{Place, code, eventually, wait_until_dead};

const CTRL_C: &str = "\x03";
const CTRL_Z: &str = "\x1a";

/// Says that it runs, then says what is typed.
const ASK: &str = "sh -c 'echo ready-$((1+1)); read x; echo got-$x'";

impl Place {
    /// An interactive shell; `leasehold` is `$L`.
    fn shell(&self) -> Pty {
        let mut shell = Command::new("bash");
        shell.args(["--norc", "--noprofile", "-i"]);
        Pty::start(self.dress(&mut shell))
    }

    /// A script on a terminal, without job control.
    fn script(&self, script: &str) -> Pty {
        let mut shell = Command::new("bash");
        shell.args(["-c", script]);
        Pty::start(self.dress(&mut shell))
    }

    fn dress<'a>(&self, shell: &'a mut Command) -> &'a mut Command {
        shell.env("L", env!("CARGO_BIN_EXE_leasehold")).env("LEASEHOLD_STORE", self.url());
        shell.current_dir(self.path(""))
    }
}

#[test]
fn the_program_reads_from_the_terminal() {
    let place = Place::new();
    let mut pty = place.script(&format!("$L run k -- {ASK}"));
    pty.wait_for("ready-2");
    pty.type_in("hello\n");
    pty.wait_for("got-hello");
    assert_eq!(code(&pty.finish()), 0);
}

#[test]
fn the_program_is_in_the_foreground_from_its_first_instruction() {
    let place = Place::new();
    // Its group, and the group in the foreground of its terminal.
    let pty =
        place.script("$L run k -- sh -c 'set -- $(cut -d\" \" -f5,8 /proc/$$/stat); echo same-$(($1 - $2))'");
    pty.wait_for("same-0");
    assert_eq!(code(&pty.finish()), 0);
}

#[test]
fn the_terminal_is_given_back() {
    let place = Place::new();
    for run in [
        "$L run k -- true",
        "$L run k -- ./no-such-program",
        "$L run --max-hold 50ms --lease 1s k -- sleep 60",
    ] {
        let mut pty = place.script(&format!("{run}; echo next-$((1+1)); read x; echo got-$x"));
        pty.wait_for("next-2");
        pty.type_in("hello\n");
        pty.wait_for("got-hello");
        pty.finish();
    }
}

#[test]
fn the_guardian_gives_the_terminal_back_when_the_runner_cannot() {
    let place = Place::new();
    let program = "sh -c 'echo $PPID >r.new; mv r.new runner; exec sleep 60'";
    let own_turn = r#"set -- $(cut -d" " -f5,8 /proc/$$/stat); [ $1 = $2 ]"#;
    let after = format!("until {own_turn}; do :; done; echo next-$((1+1)); read x; echo got-$x");
    let mut pty = place.script(&format!("$L run k -- {program}; {after}"));
    let runner = Pid::from_raw(place.number_in("runner")).unwrap();
    kill_process(runner, Signal::KILL).unwrap();
    pty.wait_for("next-2");
    pty.type_in("hello\n");
    pty.wait_for("got-hello");
    pty.finish();
}

#[test]
fn ctrl_c_ends_the_program_with_130() {
    let place = Place::new();
    let mut run = place.leasehold("run k -- sh -c");
    run.arg("echo ready-$((1+1)); exec sleep 60");
    let mut pty = Pty::start(&run);
    pty.wait_for("ready-2");
    pty.type_in(CTRL_C);
    assert_eq!(code(&pty.finish()), 130);
    place.expect("run --try k -- true", 0);
}

#[test]
fn ctrl_c_ends_the_script_around_it_too() {
    let place = Place::new();
    let mut pty =
        place.script("for i in 1 2; do $L run k -- sh -c 'echo turn-$((10+$0)); exec sleep 60' $i; done");
    pty.wait_for("turn-11");
    pty.type_in(CTRL_C);
    pty.wait_for("^C");
    let screen = pty.screen();
    let output = pty.finish();
    assert!(output.status.code().is_none(), "ended by the signal: {output:?} {screen}");
    assert!(!screen.contains("turn-12"));
}

#[test]
fn ctrl_z_stops_both_and_fg_continues_both() {
    let place = Place::new();
    let mut pty = place.shell();
    pty.type_in(&format!("$L run k -- {ASK}\n"));
    pty.wait_for("ready-2");
    pty.type_in(CTRL_Z);
    pty.wait_for("Stopped");
    pty.type_in("echo prompt-$((2+2))\n");
    pty.wait_for("prompt-4");
    pty.type_in("fg\n");
    pty.type_in("hello\n");
    pty.wait_for("got-hello");
    pty.exit();
}

#[test]
fn ctrl_z_while_waiting_and_fg_goes_on_waiting() {
    let place = Place::new();
    let holder = place.hold("run k");
    let mut pty = place.shell();
    pty.type_in("$L run k -- echo mine-$((1+1))\n");
    place.wait_for_waiters("k", 1);
    pty.type_in(CTRL_Z);
    pty.wait_for("Stopped");
    pty.type_in("fg\n");
    holder.signal(Signal::TERM);
    holder.finish();
    pty.wait_for("mine-2");
    pty.exit();
}

#[test]
fn a_program_in_the_background_waits_for_fg_to_read() {
    let place = Place::new();
    let mut pty = place.shell();
    pty.type_in(&format!("$L run k -- {ASK} &\n"));
    pty.wait_for("ready-2");
    pty.type_in("\n");
    // The shell reports it at its next prompt.
    eventually("the stop", || {
        pty.type_in("\n");
        std::thread::sleep(std::time::Duration::from_millis(50));
        pty.screen().contains("Stopped").then_some(())
    });
    pty.type_in("fg\n");
    pty.type_in("hello\n");
    pty.wait_for("got-hello");
    pty.exit();
}

#[test]
fn a_lease_that_ends_while_stopped_ends_the_program() {
    let place = Place::new();
    let mut pty = place.shell();
    // Long enough that a busy machine does not lose the lock before Ctrl-Z.
    pty.type_in("$L run --lease 5s k -- sh -c 'echo $$ >p.new; mv p.new program; read x; echo got-$x'\n");
    let program = place.number_in("program");
    pty.type_in(CTRL_Z);
    pty.wait_for("Stopped");
    assert!(!place.next_finds_running("k", program), "the guardian kills it in time");
    pty.type_in("fg\n");
    pty.wait_for("lost \"k\"");
    pty.type_in("echo status-$?\n");
    pty.wait_for("status-79");
    pty.exit();
}

#[test]
fn in_a_pipeline_the_pager_keeps_the_terminal() {
    let place = Place::new();
    let pager = "sh -c 'read line; echo $line-$((1+1)); read key </dev/tty; echo pressed-$key'";
    let mut pty = place.shell();
    pty.type_in(&format!("$L run k -- sh -c 'echo page; sleep 0.3' | {pager}\n"));
    pty.wait_for("page-2");
    pty.type_in("q\n");
    pty.wait_for("pressed-q");
    pty.exit();
}

#[test]
fn in_a_pipeline_a_program_that_asks_gets_the_terminal() {
    let place = Place::new();
    let mut pty = place.shell();
    pty.type_in(
        "echo x | $L run k -- sh -c 'echo ask-$((1+1)) >/dev/tty; read y </dev/tty; echo typed-$y' | cat\n",
    );
    pty.wait_for("ask-2");
    pty.type_in("hello\n");
    pty.wait_for("typed-hello");
    pty.exit();
}

#[test]
fn ctrl_c_in_a_pipeline_is_forwarded() {
    let place = Place::new();
    let mut pty = place.shell();
    let program = "sh -c 'echo $$ >p.new; mv p.new program; exec sleep 60'";
    pty.type_in(&format!("$L run k -- {program} | cat\n"));
    let program = place.number_in("program");
    pty.type_in(CTRL_C);
    wait_until_dead(program);
    pty.type_in("echo prompt-$((2+2))\n");
    pty.wait_for("prompt-4");
    place.expect("run --try k -- true", 0);
    pty.exit();
}

#[test]
fn ctrl_z_in_a_pipeline_stops_the_program_too() {
    let place = Place::new();
    let mut pty = place.shell();
    let program = "sh -c 'echo $$ >p.new; mv p.new program; exec sleep 60'";
    pty.type_in(&format!("$L run k -- {program} | cat\n"));
    let program = place.number_in("program");
    pty.type_in(CTRL_Z);
    pty.wait_for("Stopped");
    let is_stopped = || {
        let stat = std::fs::read_to_string(format!("/proc/{program}/stat")).unwrap();
        stat.contains(") T ")
    };
    eventually("the program to stop", || is_stopped().then_some(()));
    pty.type_in("fg\n");
    eventually("the program to go on", || (!is_stopped()).then_some(()));
    pty.type_in(CTRL_C);
    wait_until_dead(program);
    pty.exit();
}
