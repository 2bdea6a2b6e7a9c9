//! A counter in a file that nothing but the lock protects.

use std::collections::HashSet;
use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use crate::command::run;
use crate::site::{Kind, Site};
use crate::{Found, Outcome};

/// One runner in so many is killed.
const VICTIMS: usize = 10;

/// Every increment is there, and no run failed.
pub(crate) fn exact(processes: usize, increments: usize) -> Found {
    let site = Site::new(Kind::Sqlite)?;
    let (url, counter) = (site.url(), site.folder().join("counter"));
    fs::write(&counter, "0")?;
    let file = counter.to_str().ok_or("the folder's name is UTF-8")?;
    each(processes, || {
        for _ in 0..increments {
            let output = run(&url, "30s", "soak/counter", &["add", file]).output()?;
            if !output.status.success() || !output.stderr.is_empty() {
                let said = String::from_utf8_lossy(&output.stderr).into_owned();
                return Err(format!("a run ended with {}: {said}", output.status).into());
            }
        }
        Ok(())
    })?;
    let (count, wanted) = (fs::read_to_string(&counter)?, (processes * increments).to_string());
    if count != wanted {
        return Err(format!("the counter says {count}, should be {wanted}").into());
    }
    Ok(format!("{processes} processes x {increments} increments = {count}, no error"))
}

/// How one run ended.
enum End {
    Done,
    Killed,
}

/// Runners are killed at random moments; every mark is in the count and every count has its mark.
pub(crate) fn with_kills(processes: usize, increments: usize) -> Found {
    let site = Site::new(Kind::Sqlite)?;
    let folder = site.folder().join("books");
    fs::create_dir_all(folder.join("done"))?;
    fs::write(folder.join("count"), "0 nobody")?;
    let ends = each(processes, || {
        (0..increments).map(|_| run_or_kill(&site.url(), &folder)).collect::<Outcome<Vec<_>>>()
    })?;

    let text = fs::read_to_string(folder.join("count"))?;
    let (count, last) = text.split_once(' ').ok_or("the count has no name")?;
    let mut marks = HashSet::new();
    for mark in fs::read_dir(folder.join("done"))? {
        marks.insert(mark?.file_name().to_string_lossy().into_owned());
    }
    // The last one may have died before its mark, and nobody came after it.
    marks.insert(last.to_owned());
    marks.remove("nobody");

    let count: usize = count.parse()?;
    let ends: Vec<_> = ends.into_iter().flatten().collect();
    let killed = ends.iter().filter(|(_, end)| matches!(end, End::Killed)).count();
    let forgotten = ends.iter().filter(|(id, end)| matches!(end, End::Done) && !marks.contains(id)).count();
    if count != marks.len() || forgotten > 0 {
        let marks = marks.len();
        return Err(format!(
            "the count is {count}, successes {marks}, forgotten {forgotten}, killed {killed}"
        )
        .into());
    }
    Ok(format!("{} runs, {killed} killed, count {count} = successes", ends.len()))
}

fn run_or_kill(url: &str, folder: &Path) -> Outcome<(String, End)> {
    let id = format!("{:016x}", fastrand::u64(..));
    let place = folder.to_str().ok_or("the folder's name is UTF-8")?;
    let mut command = run(url, "1s", "soak/books", &["mark", place, &id]);
    let mut runner = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    if fastrand::usize(0..VICTIMS) == 0 {
        if fastrand::bool() {
            // In the critical section, at a random point of it.
            let mut out = runner.stdout.take().ok_or("stdout was asked for")?;
            out.read_exact(&mut [0; 3])?;
            std::thread::sleep(Duration::from_micros(fastrand::u64(0..3_000)));
        } else {
            // Anywhere: starting, waiting, holding, done.
            std::thread::sleep(Duration::from_millis(fastrand::u64(0..500)));
        }
        runner.kill()?;
    }
    let output = runner.wait_with_output()?;
    match output.status.code() {
        Some(0) => Ok((id, End::Done)),
        None => Ok((id, End::Killed)),
        Some(code) => {
            Err(format!("a run ended with {code}: {}", String::from_utf8_lossy(&output.stderr)).into())
        }
    }
}

/// Does it in so many threads at once and gathers what they say.
fn each<T: Send>(count: usize, work: impl Fn() -> Outcome<T> + Sync) -> Outcome<Vec<T>> {
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..count).map(|_| scope.spawn(&work)).collect();
        workers.into_iter().map(|worker| worker.join().expect("no worker panics")).collect()
    })
}
