//! A name for the boot clock of this process.

use std::fs;

/// Names the clock that [`BootClock`](crate::BootClock) reads: two processes get the same name only if their clocks show the
/// same time. `None` if the system does not name its boots.
///
/// The name has two parts: the boot, and the offset of the process's time namespace. A namespace's number would not do,
/// because the kernel gives the number of a namespace that is gone to the next one, which can have another offset.
///
/// ```
/// # #[cfg(target_os = "linux")] {
/// let name = leasehold_core::local::boot_clock_name();
/// assert!(name.is_some() && name == leasehold_core::local::boot_clock_name());
/// # }
/// ```
pub fn boot_clock_name() -> Option<String> {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let offset = match fs::read_to_string("/proc/self/timens_offsets") {
        // The file has the offsets for the process's children, who may be in another namespace than the process.
        Ok(offsets) if has_namespace_of_its_children() => boot_offset(&offsets)?,
        Ok(_) => fs::read_link("/proc/self/ns/time").ok()?.display().to_string(),
        // A kernel without time namespaces has one boot clock.
        Err(_) => "+0.0".to_owned(),
    };
    Some(format!("{} {offset}", boot.trim()))
}

fn has_namespace_of_its_children() -> bool {
    let namespace = |name: &str| fs::read_link(format!("/proc/self/ns/{name}")).ok();
    namespace("time").is_some() && namespace("time") == namespace("time_for_children")
}

/// The offset of the boot clock, in seconds and nanoseconds.
fn boot_offset(offsets: &str) -> Option<String> {
    let mut lines = offsets.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    lines.find_map(|words| match words[..] {
        // Kernels call a clock by its name or by its number.
        ["boottime" | "7", seconds, nanos] => Some(format!("+{seconds}.{nanos}")),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_are_told_apart() {
        let offsets = "monotonic           0         0\nboottime      100000       250\n";
        assert_eq!(boot_offset(offsets).as_deref(), Some("+100000.250"));
        assert_eq!(boot_offset("monotonic 0 0\n"), None);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn linux_names_its_boots() {
        assert!(boot_clock_name().is_some_and(|name| name.len() > 36));
        assert_eq!(boot_clock_name(), boot_clock_name());
    }
}
