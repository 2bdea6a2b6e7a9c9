//! A terminal with somebody typing at it.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Child, Command, Output};
use std::sync::{Arc, Mutex};
use std::thread;

use rustix::fs::OFlags;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

use super::util::{eventually, finish};

pub(crate) struct Pty {
    keyboard: File,
    screen: Arc<Mutex<String>>,
    session: Child,
}

impl Pty {
    /// Runs the command as the leader of a new session on a new terminal.
    pub(crate) fn start(command: &Command) -> Self {
        use std::os::unix::fs::OpenOptionsExt;
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap();
        let name = Path::new(std::ffi::OsStr::from_bytes(name.as_bytes()));
        let no_ctty = OFlags::NOCTTY.bits() as i32;
        let slave = OpenOptions::new().read(true).write(true).custom_flags(no_ctty).open(name).unwrap();

        let mut session = Command::new("setsid");
        session.arg("--ctty").arg(command.get_program()).args(command.get_args());
        for (name, value) in command.get_envs() {
            value.map(|value| session.env(name, value));
        }
        session.env("PS1", "$ ").env("TERM", "dumb").current_dir(command.get_current_dir().unwrap());
        session.stdin(slave.try_clone().unwrap()).stdout(slave.try_clone().unwrap()).stderr(slave);
        let session = session.spawn().unwrap();

        let keyboard = File::from(master);
        let screen = Arc::new(Mutex::new(String::new()));
        let (mut from, to) = (keyboard.try_clone().unwrap(), screen.clone());
        thread::spawn(move || {
            let mut bytes = [0; 4096];
            // An error is the end: the last process has closed the terminal.
            while let Ok(length @ 1..) = from.read(&mut bytes) {
                to.lock().unwrap().push_str(&String::from_utf8_lossy(&bytes[..length]));
            }
        });
        Self { keyboard, screen, session }
    }

    pub(crate) fn type_in(&mut self, text: &str) {
        self.keyboard.write_all(text.as_bytes()).unwrap();
    }

    pub(crate) fn screen(&self) -> String {
        self.screen.lock().unwrap().clone()
    }

    /// Waits until this is on the screen.
    pub(crate) fn wait_for(&self, text: &str) {
        let until = std::time::Instant::now() + super::util::PATIENCE;
        while !self.screen().contains(text) {
            assert!(std::time::Instant::now() < until, "no {text:?} on the screen:\n{}", self.screen());
            thread::sleep(std::time::Duration::from_millis(5));
        }
    }

    /// Waits for the session's first process to end.
    pub(crate) fn finish(mut self) -> Output {
        let screen = self.screen.clone();
        finish(&mut self.session).unwrap_or_else(|| panic!("did not end:\n{}", screen.lock().unwrap()))
    }

    /// Ends an interactive shell.
    pub(crate) fn exit(mut self) {
        self.type_in("exit\n");
        self.type_in("exit\n");
        let session = &mut self.session;
        eventually("the end of the shell", || session.try_wait().unwrap());
    }
}

impl Drop for Pty {
    fn drop(&mut self) {
        let _ = self.session.kill();
        let _ = self.session.wait();
    }
}
