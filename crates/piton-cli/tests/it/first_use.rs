//! What somebody meets who sees Piton for the first time.

use crate::world::World;

#[test]
fn the_doctor_finds_what_is_wrong_with_a_store() {
    let world = World::new();
    let healthy = world.piton(["doctor", "--json"]);
    assert_eq!(healthy.code, Some(0), "{}", healthy.whole());
    assert_eq!(healthy.json()["ok"], true);
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
