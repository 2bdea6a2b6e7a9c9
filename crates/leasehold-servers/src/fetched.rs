//! Servers that this machine's release of Debian may not have: `cargo xtask test` fetches them, into the build's own directory.

use std::path::PathBuf;

/// Where a program is: what `LEASEHOLD_PROGRAM` names, on the path, or where it was fetched to. Or how to get it.
pub(crate) fn find(program: &str) -> Result<PathBuf, String> {
    let variable = format!("LEASEHOLD_{}", program.to_uppercase().replace('-', "_"));
    if let Some(named) = std::env::var_os(&variable) {
        return Ok(named.into());
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let on_path = std::env::split_paths(&path).map(|directory| directory.join(program));
    let this = std::env::current_exe().unwrap_or_default();
    let fetched = this.ancestors().map(|directory| directory.join("servers").join(program).join("usr/bin"));
    let found = on_path.chain(fetched.map(|directory| directory.join(program))).find(|file| file.is_file());
    found.ok_or_else(|| {
        format!("{program} is missing: `cargo xtask test` fetches it, or {variable} names the file")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_told_with_how_to_get_it() {
        assert!(find("sh").is_ok());
        let said = find("no-such-server").unwrap_err();
        assert!(said.contains("cargo xtask test") && said.contains("LEASEHOLD_NO_SUCH_SERVER"), "{said}");
    }
}
