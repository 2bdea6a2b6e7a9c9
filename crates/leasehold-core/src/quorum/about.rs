//! The `Info` of a quorum, with the settings that its members found when they were opened.

use std::sync::{Arc, OnceLock};

use super::members::{Member, Progress};
use crate::capability::Info;
use crate::check::Check;

/// What to do about a member that is refused.
const REMEDY: &str = "change the setting and connect again";

/// The `Info` of a quorum. Callers keep references to it while members are still being opened, so an `Info` is never
/// changed: each step of the members makes another one.
#[derive(Debug)]
pub(super) struct About {
    declared: Info,
    /// By the number of steps that the members have made together. That number never falls.
    by_progress: Vec<OnceLock<Info>>,
}

impl About {
    pub(super) fn new(declared: Info, members: usize) -> Self {
        Self { declared, by_progress: (0..=2 * members).map(|_| OnceLock::new()).collect() }
    }

    /// The `Info` with the settings of all members that are open, and the refusals of the others.
    pub(super) fn info(&self, members: &[Arc<Member>]) -> &Info {
        let steps = |member: &Arc<Member>| match member.progress() {
            Progress::Away => 0,
            Progress::Refused(_) => 1,
            Progress::Open => 2,
        };
        let progress: usize = members.iter().map(steps).sum();
        let Some(info) = self.by_progress.get(progress) else { return &self.declared };
        info.get_or_init(|| {
            let checks = members.iter().flat_map(|member| checks(member)).collect();
            Info { checks, ..self.declared.clone() }
        })
    }
}

/// The settings of a member, with its name in front.
fn checks(member: &Member) -> Vec<Check> {
    let named = |check: &Check| Check { name: format!("{}: {}", member.name, check.name), ..check.clone() };
    match member.progress() {
        Progress::Away => Vec::new(),
        Progress::Refused(why) => {
            let check = Check::warning(&member.name, "refused");
            vec![check.effect(format!("the other members decide without it ({why})")).remedy(REMEDY)]
        }
        Progress::Open => member.store.info().checks.iter().map(named).collect(),
    }
}
