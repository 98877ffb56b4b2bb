//! What a user meets who sees Piton for the first time.

use crate::book::repository;
use crate::world::{BINARY, World};

#[test]
fn the_doctor_finds_what_is_wrong_with_a_store() {
    let world = World::new();
    let healthy = world.piton(["doctor", "--json"]);
    assert_eq!(healthy.code, Some(0), "{}", healthy.whole());
    assert_eq!(healthy.json()["ok"], true);
    let findings = healthy.json()["findings"].as_array().unwrap().clone();
    let checks: Vec<_> = findings.iter().map(|finding| finding["check"].as_str().unwrap()).collect();
    assert_eq!(checks, ["piton", "store", "disk", "engine", "git", "python3", "sandbox", "watches"]);
    assert!(findings.iter().all(|finding| finding["status"] == "ok" || finding["fix"].is_string()), "{findings:?}");
    assert!(world.piton(["status"]).stderr.contains("there is no store"), "looking makes none");

    let store = world.work().join("open.db");
    let url = format!("sqlite:{}", store.display());
    assert_eq!(world.piton(["--store", &url, "init"]).code, Some(0));
    let mode = |mode| {
        use std::os::unix::fs::PermissionsExt as _;
        std::fs::set_permissions(&store, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    let finding = |check: &str| {
        let said = world.piton(["--store", &url, "doctor", "--json"]);
        let findings = said.json()["findings"].as_array().unwrap().clone();
        (said.code, findings.into_iter().find(|finding| finding["check"] == check).unwrap())
    };
    assert_eq!(finding("privacy").1["status"], "ok");
    mode(0o644);
    let (code, privacy) = finding("privacy");
    assert_eq!((code, &privacy["status"]), (Some(1), &"problem".into()), "{privacy}");
    assert!(privacy["fix"].as_str().unwrap().starts_with("chmod 600"), "{privacy}");
    mode(0o600);

    std::fs::write(&store, "this is no store").unwrap();
    let (code, damaged) = finding("store");
    assert_eq!((code, &damaged["status"]), (Some(1), &"problem".into()), "{damaged}");
    let shown = world.piton(["--store", &url, "doctor"]);
    assert!(shown.stdout.contains("problem") && shown.stdout.contains("fix: "), "{}", shown.whole());
}

/// The picture of the README.
const PICTURE: &str = include_str!("../../../../docs/demo.svg");

/// Everything that the demo claims holds here and now, and it leaves nothing outside its folder.
#[test]
fn the_demo_keeps_its_word() {
    let world = World::new();
    let folder = world.work().join("demo");
    let said = world.piton(["demo", "--json", "--into", folder.to_str().unwrap()]);
    assert_eq!(said.code, Some(0), "{}", said.whole());
    let claims = said.json()["claims"].as_array().unwrap().clone();
    assert_eq!(claims.len(), 9, "{}", said.whole());
    assert!(claims.iter().all(|claim| claim["holds"] == true), "{claims:?}");
    // Numbers aside: git's own files differ from version to version.
    let plain = |text: &str| text.replace(|c: char| c.is_ascii_digit(), "");
    for claim in &claims {
        let line = format!("yes {}", claim["claim"].as_str().unwrap());
        assert!(plain(PICTURE).contains(&plain(&line)), "the picture doesn't show: {line}");
    }
    assert!(world.piton(["status"]).stderr.contains("there is no store"), "the folder's own store is not made");
    let shown = world.piton(["demo", "--into", folder.to_str().unwrap()]);
    assert_eq!(shown.code, Some(1), "a folder that exists is left alone: {}", shown.whole());
}

/// The picture of the README shows what the demo says, numbers and ids aside.
#[test]
fn the_picture_shows_what_the_demo_says() {
    let world = World::new();
    let script = repository().join("scripts/picture");
    let mut command = world.program("python3", [script.as_os_str(), "--check".as_ref()]);
    let said = world.wait(command.env("PITON", BINARY).spawn().unwrap());
    assert_eq!(said.code, Some(0), "{}", said.whole());
}
