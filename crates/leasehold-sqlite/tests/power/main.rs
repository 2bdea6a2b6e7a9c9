//! Power cuts, with and without `sync=full`. Part of the full tier: set `LEASEHOLD_FULL=1`.
#![allow(clippy::unwrap_used, reason = "helpers of tests may panic like tests")]

mod program;

use std::process::ExitCode;

use leasehold_conformance::power::{CUTS, Trials};
use leasehold_servers::PowerDisk;
use program::Program;

const MEGABYTES: u32 = 64;

fn main() -> ExitCode {
    if let Some(code) = program::main() {
        return code;
    }
    let (full, normal) = (|| Machine::new("full"), || Machine::new("normal"));
    Trials::new()
        .add("with_sync_full_a_power_cut_forgets_no_grant_and_tokens_rise", full, remembers)
        .add("with_sync_normal_a_power_cut_forgets_the_last_grants_and_tokens_rise", normal, forgets)
        .add("with_sync_normal_a_power_cut_forgets_no_latch", normal, remembers_latches)
        .add("with_sync_normal_a_power_cut_forgets_no_resize", normal, remembers_resizes)
        .add("with_sync_normal_a_power_cut_forgets_no_tail_of_a_job", normal, remembers_tails)
        .run()
}

/// A machine with one program on it, which uses the file.
struct Machine {
    disk: PowerDisk,
    sync: &'static str,
    boots: usize,
    program: Option<Program>,
}

impl Machine {
    fn new(sync: &'static str) -> Result<Self, String> {
        let mut machine = Self { disk: PowerDisk::of(MEGABYTES)?, sync, boots: 0, program: None };
        machine.boot();
        Ok(machine)
    }

    fn boot(&mut self) {
        self.boots += 1;
        self.program = Some(Program::start(&self.disk, self.sync, &format!("boot{}", self.boots)));
    }

    /// Takes the first token of a boot. It is always synced, and so is everything before it: that must not help any case.
    fn take_the_first_token(&mut self) {
        let key = format!("first{}", self.boots);
        self.token(&format!("acquire {key}"));
    }

    fn ask(&mut self, request: &str) -> String {
        self.program.as_mut().unwrap().ask(request)
    }

    /// The token of a request that must be granted.
    fn token(&mut self, request: &str) -> u64 {
        let answer = self.ask(request);
        answer.parse().unwrap_or_else(|_| panic!("{request}: {answer}"))
    }

    /// Cuts the power, which also ends the program, and starts it again in the next boot.
    fn cut_power(&mut self) {
        self.disk.cut();
        self.program = None;
        self.disk.restore();
        self.boot();
    }

    /// Makes a request, cuts the power at the moment it is answered, and asks what is left of it.
    fn expect(&mut self, request: &str, answer: &str, question: &str, left: &str) {
        self.take_the_first_token();
        assert_eq!(self.ask(request), answer, "{request}");
        self.cut_power();
        assert_eq!(self.ask(question), left, "{question}, after a power cut after {request}");
    }
}

async fn remembers(mut machine: Machine) {
    let mut last = 0;
    for cut in 0..CUTS {
        machine.take_the_first_token();
        let token = machine.token("acquire k");
        machine.cut_power();
        assert!(token > last, "cut {cut}: {token} after {last}");
        assert_eq!(machine.ask("try k"), "busy", "cut {cut}: the grant is forgotten");
        assert_eq!(machine.ask(&format!("evict k {token}")), "true");
        last = machine.token("acquire k");
        assert!(last > token, "cut {cut}: {last} after {token}");
        assert_eq!(machine.ask("release k"), "released");
    }
}

async fn forgets(mut machine: Machine) {
    let mut forgotten = 0;
    for cut in 0..CUTS {
        machine.take_the_first_token();
        let key = format!("k{cut}");
        let token = machine.token(&format!("acquire {key}"));
        machine.cut_power();
        let answer = machine.ask(&format!("try {key}"));
        if answer != "busy" {
            forgotten += 1;
            let next: u64 = answer.parse().unwrap_or_else(|_| panic!("{answer}"));
            assert!(next > token, "cut {cut}: {next} after {token}");
        }
    }
    // Otherwise this is no power cut, and the other trials prove nothing.
    assert!(forgotten > 0, "no grant was forgotten in {CUTS} cuts");
}

async fn remembers_latches(mut machine: Machine) {
    machine.expect("set latch 2", "true", "count latch", "2");
    machine.expect("count-down latch", "1", "count latch", "1");
    // A latch that closed again would never open.
    machine.expect("count-down latch", "0", "count latch", "0");
}

async fn remembers_resizes(mut machine: Machine) {
    machine.expect("resize semaphore 7", "resized", "available semaphore", "7");
    machine.expect("resize semaphore 3", "resized", "available semaphore", "3");
    machine.expect("resize semaphore 5", "resized", "available semaphore", "5");
}

async fn remembers_tails(mut machine: Machine) {
    machine.expect("run job", "ran", "run job", "skipped");
}
