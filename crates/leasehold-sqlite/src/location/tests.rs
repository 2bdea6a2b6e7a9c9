use super::*;

fn path_of(url: &str) -> String {
    parse(url).unwrap().0.display().to_string()
}

#[test]
fn three_slashes_name_an_absolute_path() {
    assert_eq!(path_of("sqlite:///var/lib/locks.db"), "/var/lib/locks.db");
}

#[test]
fn no_slashes_name_a_relative_path() {
    assert_eq!(path_of("sqlite:state/locks.db?sync=full"), "state/locks.db");
}

#[test]
fn percent_codes_are_decoded() {
    assert_eq!(path_of("sqlite:///a%20b%3F%25.db"), "/a b?%.db");
    assert_eq!(parse("sqlite:///a%2").unwrap_err().kind(), ErrorKind::Invalid);
}

#[test]
fn a_host_is_refused_with_the_right_spelling() {
    let error = parse("sqlite://locks.db").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("sqlite:///"), "{error}");
}

#[test]
fn sync_is_chosen_by_the_url() {
    assert_eq!(parse("sqlite:a").unwrap().1.sync, SyncMode::Normal);
    assert_eq!(parse("sqlite:a?sync=full").unwrap().1.sync, SyncMode::Full);
}

#[test]
fn unknown_parameters_are_refused_with_the_known_ones() {
    for url in ["sqlite:a?mode=ro", "sqlite:a?sync=off", "sqlite:a?sync=full&x=1"] {
        let error = parse(url).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains("sync=normal and sync=full"), "{error}");
    }
}

#[test]
fn the_default_is_in_the_state_directory() {
    let with = |variables: &'static [(&str, &str)]| {
        default_path_from(|name| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| OsString::from(value))
        })
    };
    let expect = |path: &str| Path::new(path).to_owned();
    assert_eq!(with(&[("XDG_STATE_HOME", "/s"), ("HOME", "/h")]).unwrap(), expect("/s/leasehold/locks.db"));
    assert_eq!(with(&[("HOME", "/h")]).unwrap(), expect("/h/.local/state/leasehold/locks.db"));
    assert_eq!(
        with(&[("XDG_STATE_HOME", "relative"), ("HOME", "/h")]).unwrap(),
        expect("/h/.local/state/leasehold/locks.db")
    );
    let error = with(&[]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("--store"), "{error}");
}
