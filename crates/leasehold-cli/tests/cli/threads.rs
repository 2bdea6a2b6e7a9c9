//! A program that goes on after its main thread has ended.

use std::io::Write;
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use super::util::{Place, code, eventually, has_living_thread, is_alive};

/// Ignores TERM, and ends its main thread while another thread goes on. The system then lists it as a zombie.
const SOURCE: &str = "
    #include <pthread.h>
    #include <signal.h>
    #include <unistd.h>
    static void *go_on(void *unused) { for (;;) pause(); return unused; }
    int main(void) {
        pthread_t thread;
        signal(SIGTERM, SIG_IGN);
        if (pthread_create(&thread, 0, go_on, 0)) return 1;
        pthread_exit(0);
    }";

fn compile(place: &Place, program: &str) {
    let mut compiler = Command::new("cc");
    compiler.args(["-pthread", "-x", "c", "-", "-o"]).arg(place.path(program)).stdin(Stdio::piped());
    let mut compiler = compiler.spawn().expect("a C compiler is installed: SQLite needs one too");
    compiler.stdin.take().unwrap().write_all(SOURCE.as_bytes()).unwrap();
    assert!(compiler.wait().unwrap().success());
}

#[test]
fn program_whose_main_thread_has_ended_is_killed_after_a_loss() {
    let place = Place::new();
    compile(&place, "program");
    let holder = place.hold_with("run --grace 100ms k", "exec ./program >/dev/null 2>&1");
    let program = holder.program;
    eventually("the end of the main thread", || (!is_alive(program)).then_some(()));
    assert!(has_living_thread(program), "the other thread goes on");

    place.expect("release k --force", 0);
    assert_eq!(code(&holder.finish()), 79);
    let survives = has_living_thread(program);
    if survives {
        let _ = kill_process(Pid::from_raw(program).unwrap(), Signal::KILL);
    }
    assert!(!survives, "the program runs beside the next holder");
}
