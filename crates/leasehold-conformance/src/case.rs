//! A law as a program, and how a file lists its own.

use std::fmt;
use std::pin::Pin;

use crate::scene::Scene;
use crate::verdict::Verdict;

type Body = Pin<Box<dyn Future<Output = Verdict> + Send>>;

/// A law as a program: its name is the law.
pub(crate) struct Case {
    pub(crate) group: &'static str,
    pub(crate) name: &'static str,
    pub(crate) body: Box<dyn FnOnce(Scene) -> Body + Send>,
    pub(crate) company: Company,
}

/// What may run beside a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Company {
    /// Other trials.
    Welcome,
    /// Nothing: it counts what belongs to the whole process.
    Alone,
}

impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}::{}", self.group, self.name)
    }
}

/// Lists the cases of a group.
macro_rules! cases {
    ($group:literal: $($name:ident),+ $(,)?) => {
        /// The cases of this group.
        pub(crate) fn cases() -> Vec<$crate::case::Case> {
            vec![$($crate::case::Case {
                group: $group,
                name: stringify!($name),
                body: Box::new(|scene| Box::pin($name(scene))),
                company: $crate::case::Company::Welcome,
            }),+]
        }
    };
}
pub(crate) use cases;

/// Lists the cases of a mutex, once through every [view](crate::views::View).
macro_rules! viewed_cases {
    ($($name:ident),+ $(,)?) => {
        /// The cases of this group, through every view.
        pub(crate) fn cases() -> Vec<$crate::case::Case> {
            let through = |view: $crate::views::View| {
                vec![$($crate::case::Case {
                    group: view.group(),
                    name: stringify!($name),
                    body: Box::new(move |scene| {
                        Box::pin(async move { $name($crate::views::Stage::set(scene, view).await?).await })
                    }),
                    company: $crate::case::Company::Welcome,
                }),+]
            };
            $crate::views::View::ALL.into_iter().flat_map(through).collect()
        }
    };
}
pub(crate) use viewed_cases;
