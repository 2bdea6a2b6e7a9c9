//! What the soak runs under a lock: small steps that go wrong when two of them overlap.

use std::error::Error;
use std::io::Write;
use std::path::Path;
use std::time::Duration;
use std::{env, fs, process, thread};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["hold"] => hold(),
        ["add", file] => add(Path::new(file)),
        ["mark", folder, id] => mark(Path::new(folder), id),
        _ => Err("usage: soak-step hold | add FILE | mark FOLDER ID".into()),
    }
}

/// Says that it is in, and stays until it is killed.
fn hold() -> Result<(), Box<dyn Error>> {
    say_in()?;
    thread::sleep(Duration::from_secs(3600));
    Ok(())
}

/// Read, wait, write: loses an increment whenever two of these overlap.
fn add(file: &Path) -> Result<(), Box<dyn Error>> {
    let count: u64 = fs::read_to_string(file)?.trim().parse()?;
    linger();
    fs::write(file, (count + 1).to_string())?;
    Ok(())
}

/// The same, but it can be killed anywhere and the books still balance: the count and the name of who made
/// it change in one rename, and whoever comes next writes the mark that its predecessor could not.
fn mark(folder: &Path, id: &str) -> Result<(), Box<dyn Error>> {
    say_in()?;
    let text = fs::read_to_string(folder.join("count"))?;
    let (count, last) = text.split_once(' ').ok_or("the count has no name")?;
    let done = |id: &str| fs::write(folder.join("done").join(id), "");
    done(last)?;
    linger();
    let next = folder.join(format!("next-{id}"));
    fs::write(&next, format!("{} {id}", count.parse::<u64>()? + 1))?;
    fs::rename(next, folder.join("count"))?;
    linger();
    done(id)?;
    Ok(())
}

fn say_in() -> Result<(), Box<dyn Error>> {
    let mut out = std::io::stdout();
    writeln!(out, "in")?;
    Ok(out.flush()?)
}

/// Long enough for another process to get in between, if nothing keeps it out.
fn linger() {
    thread::sleep(Duration::from_micros(200 + u64::from(process::id() % 8) * 100));
}
