//! The rules, one function each.

use std::collections::{HashMap, HashSet};
use std::path::{Component, Path, PathBuf};

use super::File;

/// Past this a file holds more than one idea.
const MOST_LINES: usize = 400;

/// Crates under `crates/` that are not stores; all others are.
const NOT_STORES: &[&str] = &[
    "leasehold",
    "leasehold-core",
    "leasehold-conformance",
    "leasehold-cli",
    "leasehold-bench",
    "leasehold-simulation",
    "leasehold-servers",
    "leasehold-sql",
    "leasehold-tls",
];

/// What everybody wants to know of a store, in this order.
const STORE_HEADINGS: &[&str] =
    &["Use it", "How it works here", "Guarantees and limits", "Options", "Operating it"];

pub(super) fn files_are_short(files: &[File]) -> Vec<String> {
    let code = files.iter().filter(|file| {
        let ours = file.path.starts_with("crates/") || file.path.starts_with("xtask/");
        ours && [".rs", ".lua", ".sql"].iter().any(|end| file.path.ends_with(end))
    });
    let long = code.filter(|file| file.text.lines().count() > MOST_LINES);
    long.map(|file| {
        let lines = file.text.lines().count();
        file.complain(None, format_args!("{lines} lines, the most is {MOST_LINES}: split it by idea"))
    })
    .collect()
}

pub(super) fn stores_explain_themselves(files: &[File]) -> Vec<String> {
    let mut complaints = Vec::new();
    for manifest in files {
        let Some(name) = crate_of(manifest).filter(|name| !NOT_STORES.contains(name)) else { continue };
        let readme = format!("crates/{name}/README.md");
        let Some(readme) = files.iter().find(|file| file.path == readme) else {
            complaints.push(manifest.complain(None, "a store needs a README.md beside this"));
            continue;
        };
        let headings: Vec<_> = readme.text.lines().filter_map(|line| line.strip_prefix('#')).collect();
        let mut at = 0;
        for wanted in STORE_HEADINGS {
            match headings[at..].iter().position(|heading| heading.trim_start_matches('#').trim() == *wanted)
            {
                Some(found) => at += found + 1,
                None => complaints.push(
                    readme.complain(None, format_args!("no heading `{wanted}` in its place among the five")),
                ),
            }
        }
    }
    complaints
}

/// The crate whose manifest this is, for crates under `crates/`.
fn crate_of(file: &File) -> Option<&str> {
    let name = file.path.strip_prefix("crates/")?.strip_suffix("/Cargo.toml")?;
    (!name.contains('/')).then_some(name)
}

pub(super) fn crates_inherit_the_lints(files: &[File]) -> Vec<String> {
    let manifests = files.iter().filter(|file| file.path.ends_with("/Cargo.toml"));
    let lax = manifests.filter(|file| !file.text.contains("[lints]\nworkspace = true"));
    lax.map(|file| file.complain(None, "add `[lints]` with `workspace = true`")).collect()
}

pub(super) fn exceptions_have_a_reason(files: &[File]) -> Vec<String> {
    let mut complaints = Vec::new();
    for file in files.iter().filter(|file| file.path.ends_with(".rs")) {
        let lines: Vec<_> = file.text.lines().collect();
        for (index, line) in lines.iter().enumerate() {
            let starts = ["#[allow(", "#![allow(", "#[expect(", "#![expect("];
            if !starts.iter().any(|start| line.trim_start().starts_with(start)) {
                continue;
            }
            // The attribute may go over several lines.
            let end = lines[index..].iter().position(|line| line.contains(")]")).unwrap_or(0);
            if !lines[index..=index + end].iter().any(|line| line.contains("reason =")) {
                complaints.push(file.complain(Some(index), "say why: add `reason = \"...\"`"));
            }
        }
    }
    complaints
}

pub(super) fn nothing_names_this_machine(files: &[File]) -> Vec<String> {
    let home = std::env::var("HOME").unwrap_or_default();
    let mut places = vec![["", "root", ""].join("/"), ["", "work", ""].join("/")];
    if home.len() > 1 {
        places.push(format!("{home}/"));
    }
    let mut complaints = Vec::new();
    for file in files {
        for (index, line) in file.text.lines().enumerate() {
            if let Some(place) = places.iter().find(|place| names(line, place)) {
                complaints
                    .push(file.complain(Some(index), format_args!("`{place}` is a place on one machine")));
            }
        }
    }
    complaints
}

/// Whether an absolute path in `line` starts with `place`.
fn names(line: &str, place: &str) -> bool {
    line.match_indices(place).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        before.is_none_or(|c| !c.is_alphanumeric() && !"._-/}~*".contains(c))
    })
}

pub(super) fn dependencies_come_from_the_default_registry(files: &[File]) -> Vec<String> {
    let mut complaints = Vec::new();
    for file in files {
        for (index, line) in file.text.lines().enumerate() {
            let elsewhere = match file.path.as_str() {
                "Cargo.lock" => {
                    // Cargo's own name for the registry that needs no settings.
                    let default = "source = \"registry+https://github.com/rust-lang/";
                    line.starts_with("source = ") && !line.starts_with(default)
                }
                ".cargo/config.toml" => ["[source", "[registr"].iter().any(|table| line.starts_with(table)),
                _ => false,
            };
            if elsewhere {
                complaints
                    .push(file.complain(Some(index), "dependencies come from cargo's default registry"));
            }
        }
    }
    complaints
}

/// Relative links in prose lead to files of the repository.
pub(super) fn links_lead_somewhere(files: &[File]) -> Vec<String> {
    let mut there = HashSet::new();
    for file in files {
        there.extend(Path::new(&file.path).ancestors().map(PathBuf::from));
    }
    let mut complaints = Vec::new();
    for file in files.iter().filter(|file| file.path.ends_with(".md")) {
        for (index, line) in file.text.lines().enumerate() {
            for target in targets(line) {
                let base = Path::new(&file.path).parent().unwrap_or(Path::new(""));
                if !there.contains(&flat(&base.join(target))) {
                    complaints.push(file.complain(Some(index), format_args!("no such file: {target}")));
                }
            }
        }
    }
    complaints
}

/// The files that a line of prose links to: not addresses, not headings, not Rust items.
fn targets(line: &str) -> impl Iterator<Item = &str> {
    let links = line.match_indices("](").filter_map(|(at, _)| line[at + 2..].split_once(')'));
    let files = links.map(|(target, _)| target.split('#').next().unwrap_or(target));
    files.filter(|target| !target.is_empty() && !target.contains(':') && target.contains(['/', '.']))
}

/// The path without `.` and `..`.
fn flat(path: &Path) -> PathBuf {
    let mut flat = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => {
                flat.pop();
            }
            part => flat.push(part),
        }
    }
    flat
}

/// Every test that the safety page, the threat models and the list of unsteady tests name exists, and every row of a
/// table with a column `test` names one or says `no test`.
pub(super) fn documented_tests_exist(files: &[File]) -> Vec<String> {
    let mut known: HashMap<&str, Vec<&File>> = HashMap::new();
    for file in files.iter().filter(|file| file.path.starts_with("crates/") && file.path.ends_with(".rs")) {
        for name in file.text.lines().flat_map(test_names) {
            known.entry(name).or_default().push(file);
        }
    }
    let mut complaints = Vec::new();
    let is_checked = |path: &str| {
        ["docs/safety.md", "docs/unsteady-tests.md"].contains(&path) || path.starts_with("docs/threat-model")
    };
    for file in files.iter().filter(|file| is_checked(&file.path)) {
        let mut column = None;
        let mut before = "";
        for (index, line) in file.text.lines().enumerate() {
            // The first row of a table is its header, and the second a line of dashes.
            if line.starts_with('|') && !before.starts_with('|') {
                column = line.split('|').position(|cell| cell.trim_start().starts_with("test"));
            }
            let is_row = before.starts_with('|') && line.starts_with('|') && !line.starts_with("|--");
            before = line;
            let cell = column.filter(|_| is_row).and_then(|column| line.split('|').nth(column));
            let in_column: Vec<_> = cell.map(quoted).into_iter().flatten().collect();
            let elsewhere = quoted(line).filter(|word| is_test_path(word) && !in_column.contains(word));
            for name in in_column.iter().copied().chain(elsewhere) {
                if !is_test(name, &known) {
                    complaints.push(file.complain(Some(index), format_args!("no such test: {name}")));
                }
            }
            if cell.is_some_and(|cell| in_column.is_empty() && !cell.contains("no test")) {
                complaints.push(file.complain(Some(index), "name the test of this row, or write `no test`"));
            }
        }
    }
    complaints
}

/// The names that a line of code may give to a test: a function, a trial's string, or an entry of a macro's list.
fn test_names(line: &str) -> impl Iterator<Item = &str> {
    let function = line.split_once("fn ").map(|(_, rest)| rest.split(['(', '<']).next().unwrap_or(rest));
    let entry = line.trim_start().split_once(':').map(|(name, _)| name);
    function.into_iter().chain(entry).chain(line.split('"').skip(1).step_by(2))
}

/// The words between backquotes.
fn quoted(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2)
}

/// Whether this is a module and a test, and not a type and a method of it.
fn is_test_path(word: &str) -> bool {
    let is_name = |part: &str| {
        part.starts_with(|c: char| c.is_ascii_lowercase())
            && part.chars().all(|c| c.is_ascii_alphanumeric() || "_/.-".contains(c))
    };
    word.contains("::") && word.split("::").all(is_name)
}

/// Whether a file has a test of this name. The module is the file, a folder above it, or a group of conformance cases.
fn is_test(path: &str, known: &HashMap<&str, Vec<&File>>) -> bool {
    let (module, name) = path.rsplit_once("::").unwrap_or(("", path));
    let module = module.rsplit(['/', ':']).next().unwrap_or(module).trim_end_matches(".rs");
    let is_in = |file: &&File| {
        let mut folders = file.path.split(['/', '.']);
        module.is_empty()
            || folders.any(|folder| folder == module)
            || file.text.contains(&format!("\"{module}\""))
    };
    known.get(name).is_some_and(|files| files.iter().any(is_in))
}
