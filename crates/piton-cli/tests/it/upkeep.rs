//! `check`, `gc`, `copy`, `export` and `import`, as a user meets them.

use std::process::Stdio;

use piton_testing::strace::{self, KillAt};

use crate::world::{World, wait_until};

/// A folder with a few checkpoints in a store of its own.
fn world() -> (World, String) {
    let world = World::new();
    let store = format!("sqlite:{}", world.root().join("store.db").display());
    for n in 0..3 {
        world.write("a.txt", &format!("{n}\n").repeat(2_000));
        let saved = world.piton(["--store", &store, "save", "-m", &format!("number {n}")]);
        assert_eq!(saved.code, Some(0), "{}", saved.whole());
    }
    (world, store)
}

/// C6, promise 7: what is whole is called whole; a flipped byte is found, and a repair keeps the rest and the damaged
/// store too.
#[test]
fn damage_is_found_and_what_is_whole_is_kept() {
    let (world, store) = world();
    let piton = |verb: &[&str]| world.piton(["--store", &store].iter().chain(verb));
    let whole = piton(&["check", "--deep", "--json"]);
    assert_eq!(whole.code, Some(0), "{}", whole.whole());

    let path = world.root().join("store.db");
    let bytes = std::fs::read(&path).unwrap();
    let mut found = 0;
    for page in 0..bytes.len() / 4096 {
        let mut damaged = bytes.clone();
        damaged[page * 4096 + 4_000] ^= 1;
        std::fs::write(&path, &damaged).unwrap();
        let checked = piton(&["check"]);
        assert_ne!(checked.code, Some(70), "page {page}: {}", checked.whole());
        if checked.code == Some(0) {
            continue;
        }
        found += 1;
        let repaired = piton(&["check", "--repair", "--yes"]);
        assert_eq!(repaired.code, Some(0), "page {page}: {}", repaired.whole());
        assert_eq!(piton(&["check", "--deep"]).code, Some(0), "page {page}: after the repair all is well");
        assert_eq!(std::fs::read(world.root().join("store.db.damaged-1")).unwrap(), damaged, "nothing is deleted");
        std::fs::remove_file(world.root().join("store.db.damaged-1")).unwrap();
        assert!(!world.root().join("store.db-gathered").exists(), "page {page}");
    }
    assert!(found > 3, "only {found} flips were found");
}

/// What a page of a SQLite database is, by what it says of itself and what the map of pages (page 2) says of it.
fn kind(database: &[u8], page: usize) -> &'static str {
    let mapped = (page > 2).then(|| database[4096 + (page - 3) * 5]);
    match (page, mapped, database[(page - 1) * 4096]) {
        (1, ..) => "header",
        (2, ..) => "map of pages",
        (_, Some(2), _) => "free",
        (_, Some(3 | 4), _) => "overflow",
        (.., 2) => "inner index",
        (.., 5) => "inner table",
        (.., 10) => "leaf of an index",
        (.., 13) => "leaf of a table",
        _ => "unknown",
    }
}

/// The numbers of the runs that have entries on a page, or on the one from which it overflows. A row of another table may
/// be one of the folder's own run, the first.
fn runs_on(database: &[u8], mut page: usize) -> Vec<u64> {
    while kind(database, page) == "overflow" {
        let parent = &database[4096 + (page - 3) * 5 + 1..][..4];
        page = u32::from_be_bytes(parent.try_into().unwrap()) as usize;
    }
    if kind(database, page) != "leaf of a table" {
        return Vec::new();
    }
    let page = &database[(page - 1) * 4096..page * 4096];
    let varint = |at: &mut usize| {
        let mut number = 0_u64;
        loop {
            let byte = page[*at];
            *at += 1;
            number = number << 7 | u64::from(byte & 0x7f);
            if byte & 0x80 == 0 {
                return number;
            }
        }
    };
    let cells = usize::from(u16::from_be_bytes([page[3], page[4]]));
    let key = |cell: usize| {
        let mut at = usize::from(u16::from_be_bytes([page[8 + 2 * cell], page[9 + 2 * cell]]));
        varint(&mut at);
        varint(&mut at)
    };
    (0..cells).map(|cell| (key(cell) >> 32).max(1)).collect()
}

/// Promise 7: every run whose own rows are undamaged is kept as it was, whichever page is damaged. Every kind of page by
/// itself; at the full level every page.
#[test]
fn a_damaged_page_costs_no_run_but_those_whose_rows_it_has() {
    let world = World::new();
    let store = format!("sqlite:{}", world.root().join("store.db").display());
    let piton = |verb: &[&str]| world.piton(["--store", &store].iter().chain(verb));
    for n in 0..400_u32 {
        let word = n.wrapping_mul(2_654_435_761);
        world
            .write(&format!("file-{n}"), &(0..150).map(|m| format!("{:08x}", word ^ (m * 40_503))).collect::<String>());
    }
    assert_eq!(piton(&["save"]).code, Some(0));
    world.write("flow.yml", "nodes:\n  - {id: in, data: {type: start, variables: [{variable: text, type: string}]}}\n  - {id: say, data: {type: command, command: [echo, '{{#in.text#}}']}}\n  - {id: again, data: {type: command, command: [echo, '{{#say.stdout#}}']}}\n  - {id: out, data: {type: end, outputs: [{variable: said, value_selector: [again, stdout]}]}}\nedges: [{source: in, target: say}, {source: say, target: again}, {source: again, target: out}]\n");
    for n in 1..=5 {
        let text: String = (0..600).map(|m| format!("{}", n * 7_919 * (m + 3))).collect();
        let ran = piton(&["run", "flow.yml", "--id", &format!("r{n}"), "-i", &format!("text={text}")]);
        assert_eq!(ran.code, Some(0), "{}", ran.whole());
    }
    let runs = |checked: &crate::world::Said| -> std::collections::BTreeMap<String, serde_json::Value> {
        let runs = checked.json()["runs"].as_array().unwrap().clone();
        runs.into_iter().map(|run| (run["run"].as_str().unwrap().to_owned(), run)).collect()
    };
    let before = runs(&piton(&["check", "--json"]));
    let own = before.keys().find(|run| run.starts_with("work")).unwrap().clone();
    let numbered = [own.as_str(), "r1", "r2", "r3", "r4", "r5"];
    assert_eq!(before.len(), numbered.len(), "{before:?}");

    let path = world.root().join("store.db");
    let bytes = std::fs::read(&path).unwrap();
    let mut pages: std::collections::BTreeMap<&str, Vec<usize>> = std::collections::BTreeMap::new();
    for page in 1..=bytes.len() / 4096 {
        pages.entry(kind(&bytes, page)).or_default().push(page);
    }
    for wanted in
        ["header", "map of pages", "inner index", "inner table", "leaf of an index", "leaf of a table", "overflow"]
    {
        assert!(pages.contains_key(wanted), "{wanted}: {pages:?}");
    }
    let each = piton_testing::level::by_level(2, 6, usize::MAX);
    let (mut kept, mut whole, mut hidden) = (0, 0, 0);
    for (kind, pages) in pages {
        for page in piton_testing::level::sample(&pages, each, 7) {
            let mut damaged = bytes.clone();
            damaged[(page - 1) * 4096 + 2_000] ^= 1;
            std::fs::write(&path, &damaged).unwrap();
            if kind == "inner table" {
                let damaged = runs(&piton(&["check", "--json"]));
                hidden = hidden.max(damaged.values().filter(|run| run["checkpoints"] == 0).count());
            }
            let repaired = piton(&["check", "--repair", "--yes"]);
            assert_eq!(repaired.code, Some(0), "{kind} {page}: {}", repaired.whole());
            let after = piton(&["check", "--json"]);
            assert_eq!(after.code, Some(0), "{kind} {page}: {}", after.whole());
            let (on, after) = (runs_on(&bytes, page), runs(&after));
            for (number, run) in (1..).zip(&numbered) {
                if on.contains(&number) {
                    continue;
                }
                whole += 1;
                let same = after.get(*run).is_some_and(|after| {
                    ["entries", "checkpoints"].iter().all(|count| after[count] == before[*run][count])
                });
                kept += u32::from(same);
                assert!(same, "{kind} {page}: {run} has no row there and isn't kept: {}", repaired.whole());
            }
            for copy in ["store.db.damaged-1", "store.db-wal.damaged-1"] {
                let _ = std::fs::remove_file(world.root().join(copy));
            }
        }
    }
    assert_eq!(hidden, numbered.len(), "the control: read by its tables, a store with such a page has no run any more");
    println!("{kept} runs kept of {whole} that were whole");
}

/// Promise 7: commits behind damage in the WAL that a killed process left are given up only by a repair that says so; a
/// dry run reports them and changes nothing.
#[test]
fn the_end_of_a_damaged_log_is_never_dropped_in_silence() {
    let (world, store) = world();
    world.write("slow.yml", "nodes:\n  - {id: in, data: {type: start}}\n  - {id: wait, data: {type: command, command: [sh, -c, 'touch begun; while ! test -e go; do sleep 0.05; done']}}\n  - {id: out, data: {type: end}}\nedges:\n  - {source: in, target: wait}\n  - {source: wait, target: out}\n");
    let mut child = world.command(["--store", &store, "run", "slow.yml", "--id", "r"]).spawn().unwrap();
    wait_until(|| world.work().join("begun").exists());
    child.kill().unwrap();
    child.wait().unwrap();
    world.write("go", "");
    let at = |name: &str| world.root().join(name);
    let mut log = std::fs::read(at("store.db-wal")).unwrap();
    log[40] ^= 1;
    std::fs::write(at("store.db-wal"), &log).unwrap();
    let database = std::fs::read(at("store.db")).unwrap();
    let names = || {
        let mut names: Vec<_> =
            std::fs::read_dir(world.root()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    };
    let unchanged =
        || std::fs::read(at("store.db")).unwrap() == database && std::fs::read(at("store.db-wal")).unwrap() == log;
    let piton = |verb: &[&str]| world.piton(["--store", &store, "check"].iter().chain(verb));

    let before = names();
    let planned = piton(&["--repair", "--dry-run"]);
    assert_eq!(planned.code, Some(1), "{}", planned.whole());
    assert!(planned.stdout.starts_with("damaged: [ROOT]/store.db-wal: "), "{}", planned.whole());
    assert!(planned.stdout.contains("behind it are given up") && !planned.stdout.contains("all well"));
    let planned = piton(&["--repair", "--dry-run", "--json"]);
    assert_eq!((planned.code, planned.json()["whole"].as_bool()), (Some(1), Some(false)), "{}", planned.whole());
    assert!(planned.json()["defects"][0]["detail"].as_str().unwrap().contains("commits are before the damage"));
    assert!(unchanged() && names() == before, "a dry run changes nothing: {:?}", names());
    let refused = piton(&["--repair"]);
    assert_eq!(refused.code, Some(4), "nobody can be asked: {}", refused.whole());
    assert_eq!(piton(&[]).code, Some(1));
    assert!(unchanged());
    assert_eq!(piton(&["--repair", "--dry-run"]).code, Some(1));
    let copy = at("store.db-wal.damaged-1");
    assert_eq!(std::fs::read(&copy).unwrap(), log, "a dry run leaves the copy of a check alone");

    let repaired = piton(&["--repair", "--yes", "--json"]);
    assert_eq!(repaired.code, Some(0), "{}", repaired.whole());
    let json = repaired.json();
    assert!(json["commits_given_up"].as_u64() > Some(0) && json["whole"].is_null(), "{json}");
    assert_eq!(json["wal_set_aside"], "[ROOT]/store.db-wal.damaged-1");
    assert_eq!(std::fs::read(&copy).unwrap(), log, "nothing is deleted");
    assert_eq!(piton(&["--deep"]).code, Some(0), "after the repair all is well");
    let list = world.piton(["--store", &store, "checkpoint", "list", "--json"]);
    assert_eq!(list.stdout.lines().count(), 3, "what was before the log is kept: {}", list.whole());

    std::fs::write(at("store.db"), &database).unwrap();
    std::fs::write(at("store.db-wal"), &log).unwrap();
    let repaired = piton(&["--repair", "--yes"]);
    assert_eq!(repaired.code, Some(0), "{}", repaired.whole());
    assert!(
        repaired.stdout.contains(" behind it given up\nthe damaged WAL is kept as [ROOT]/store.db-wal.damaged-1\n")
    );
}

/// Runs go from one store into another, and are the same there.
#[test]
fn runs_are_copied_exported_and_imported() {
    let (world, store) = world();
    let files = format!("file:{}", world.root().join("files").display());
    let copied = world.piton(["copy", &store, &files]);
    assert_eq!(copied.code, Some(0), "{}", copied.whole());
    let again = world.piton(["copy", &store, &files, "--json"]);
    assert_eq!(again.code, Some(0), "a copy can be repeated: {}", again.whole());
    let log = |store: &str| world.piton(["--store", store, "log", "--all", "--json"]).stdout;
    assert_eq!(log(&store), log(&files));
    world.write("a.txt", "gone");
    assert_eq!(world.piton(["--store", &files, "restore", "@", "--yes"]).code, Some(0));
    assert_eq!(std::fs::read_to_string(world.work().join("a.txt")).unwrap(), "2\n".repeat(2_000));

    world.write("flow.yml", "nodes:\n  - {id: in, data: {type: start}}\n  - {id: out, data: {type: end}}\nedges:\n  - {source: in, target: out}\n");
    assert_eq!(world.piton(["--store", &store, "run", "flow.yml", "--id", "x"]).code, Some(0));
    let exported = world.work().join("x.piton");
    let shown = exported.display();
    let command = format!("{} --store {store} export x > {shown}", crate::world::BINARY);
    assert!(world.program("sh", ["-c", &command]).status().unwrap().success());
    let other = format!("sqlite:{}", world.root().join("other.db").display());
    let imported = world.piton(["--store", &other, "import", exported.to_str().unwrap()]);
    assert_eq!(imported.code, Some(0), "{}", imported.whole());
    let show = |store: &str| world.piton(["--store", store, "show", "x", "--steps", "--json"]).json();
    assert_eq!(show(&other), show(&store));
}

/// C5: what is no longer needed goes after a plan; what is needed stays.
#[test]
fn nothing_goes_that_is_kept() {
    let (world, store) = world();
    let planned = world.piton(["--store", &store, "gc", "--dry-run"]);
    assert_eq!(planned.code, Some(0), "{}", planned.whole());
    let done = world.piton(["--store", &store, "gc", "--yes", "--now"]);
    assert_eq!(done.code, Some(0), "{}", done.whole());
    assert_eq!(world.piton(["--store", &store, "check", "--deep"]).code, Some(0));
    let list = world.piton(["--store", &store, "checkpoint", "list", "--json"]);
    assert_eq!(list.stdout.lines().count(), 3, "{}", list.whole());
}

/// C5: how long things are kept can be said for once, and for the store from then on, which a copy and a repair keep to.
#[test]
fn a_store_has_rules_of_its_own() {
    let (world, store) = world();
    for n in 0..4 {
        world.write("more.txt", &format!("{n}\n"));
        assert_eq!(world.piton(["--store", &store, "save"]).code, Some(0));
    }
    let gc = |more: &[&str]| {
        let said = world.piton([&["--store", &store, "gc"], more].concat());
        assert_eq!(said.code, Some(0), "{}", said.whole());
        said.whole()
    };
    let kept = || world.piton(["--store", &store, "checkpoint", "list", "--json"]).stdout.lines().count();
    assert!(gc(&["--per-folder", "2", "--remember", "--dry-run"]).contains("of a folder 2"));
    assert!(!gc(&["--dry-run"]).contains("of a folder 2"), "nothing was done");
    assert!(gc(&["--completed", "2w", "--remember", "--yes"]).contains("14 days"));
    assert_eq!(kept(), 7);
    let copy = format!("sqlite:{}", world.root().join("copy.db").display());
    assert_eq!(world.piton(["copy", &store, &copy]).code, Some(0));
    let copied = world.piton(["--store", &copy, "gc", "--dry-run"]).whole();
    assert!(copied.contains("completed runs are kept for 14 days, failed ones for 30 days"), "{copied}");
    assert!(gc(&["--per-folder", "2", "--now", "--yes"]).contains("14 days"));
    assert!(kept() < 7, "for once: {}", kept());
    let log = world.piton(["--store", &store, "log", "--checkpoints", "--json"]).stdout;
    assert_eq!(log.lines().filter(|line| line.contains(r#""removed":true"#)).count(), 7 - kept(), "{log}");
    assert!(world.piton(["--store", &store, "log", "--all"]).stdout.contains("checkpoint  removed"));
    assert!(gc(&["--dry-run"]).contains("of a folder 50"));
    for wrong in ["2", "2y", "-1d", "d", "99999999999999999w"] {
        assert_eq!(world.piton(["--store", &store, "gc", "--completed", wrong, "--dry-run"]).code, Some(2), "{wrong}");
    }
    assert_eq!(world.piton(["--store", &store, "gc", "--per-run", "1", "--dry-run"]).code, Some(2));

    let path = store.split_once(':').unwrap().1;
    let mut damaged = std::fs::read(path).unwrap();
    let at = damaged.len() - 4096 + 2000;
    damaged[at] ^= 1;
    std::fs::write(path, damaged).unwrap();
    let repaired = world.piton(["--store", &store, "check", "--repair", "--yes"]);
    assert_eq!(repaired.code, Some(0), "{}", repaired.whole());
    assert!(gc(&["--dry-run"]).contains("14 days"));
}

/// Any two stores, encrypted or not: what is in a plain one gets into an encrypted one, into one with another key, and
/// back, and the files with it.
#[test]
fn runs_are_copied_between_encrypted_stores() {
    let (world, store) = world();
    let url = |name: &str| format!("sqlite:{}", world.root().join(name).display());
    for name in ["one", "two"] {
        let made = world.piton(["init", "--store", &url(name), "--encrypt", "--key-file", &format!("../{name}.key")]);
        assert_eq!(made.code, Some(0), "{}", made.whole());
    }
    let copied = world.piton(["copy", &store, &url("one"), "--to-key-file", "../one.key"]);
    assert_eq!(copied.code, Some(0), "{}", copied.whole());
    let across =
        ["copy", &url("one"), &url("two"), "--key-file", "../one.key", "--to-key-file", "../two.key", "--json"];
    let copied = world.piton(across);
    assert_eq!(copied.code, Some(0), "{}", copied.whole());
    assert!(copied.json()["entries"].as_u64() > Some(3));
    assert_eq!(world.piton(across).json()["entries"], 0, "nothing is left");
    let back = world.piton(["copy", &url("two"), &url("three"), "--key-file", "../two.key"]);
    assert_eq!(back.code, Some(0), "{}", back.whole());
    let log = |store: &str, key: &str| {
        world.piton(["--store", store, "--key-file", key, "checkpoint", "list", "--json"]).stdout
    };
    assert_eq!(log(&store, "../none"), log(&url("two"), "../two.key"));
    assert_eq!(log(&store, "../none"), log(&url("three"), "../none"));
    world.write("a.txt", "gone");
    let restored = world.piton(["--store", &url("two"), "--key-file", "../two.key", "restore", "@", "--yes"]);
    assert_eq!(restored.code, Some(0), "{}", restored.whole());
    assert_eq!(std::fs::read_to_string(world.work().join("a.txt")).unwrap(), "2\n".repeat(2_000));
    let checked = world.piton(["--store", &url("two"), "--key-file", "../two.key", "check", "--deep"]);
    assert_eq!(checked.code, Some(0), "{}", checked.whole());
}

/// What isn't an export is refused by its own name, with a way on; a pipe that no process writes to isn't waited for.
#[test]
fn what_is_no_export_is_not_imported() {
    let world = World::new();
    world.write("text", &"no store\n".repeat(100));
    world.write("empty", "");
    rustix::fs::mkfifoat(rustix::fs::CWD, world.work().join("pipe"), rustix::fs::Mode::RUSR).unwrap();
    for (name, why) in [
        ("text", "it is not an SQLite database"),
        ("empty", "it is empty"),
        ("pipe", "it is empty"),
        (".", "can't read ."),
    ] {
        let said = world.piton(["import", name]);
        assert_eq!(said.code, Some(1), "{}", said.whole());
        assert!(said.stderr.contains(why) && !said.stderr.contains("export.db"), "{}", said.whole());
    }
    assert!(world.piton(["import", "text"]).stderr.contains("`piton export RUN > FILE`"));
    // What has no end is known by its beginning.
    let endless = world.piton(["import", "/dev/zero"]);
    assert!(endless.code == Some(1) && endless.stderr.contains("not an SQLite database"), "{}", endless.whole());
    let zero = std::fs::File::open("/dev/zero").unwrap();
    let endless = world.wait(world.command(["import", "-"]).stdin(Stdio::from(zero)).spawn().unwrap());
    assert!(endless.code == Some(1) && endless.stderr.contains("stdin isn't what"), "{}", endless.whole());
    assert!(!world.state().exists(), "no store is made for nothing");

    // One that begins as a database ends where that ends, and none is larger than the disk.
    let beginning = |pages: u32| {
        let mut header = [&b"SQLite format 3\0"[..], &[0; 84]].concat();
        header[16..18].copy_from_slice(&4096_u16.to_be_bytes());
        header[28..32].copy_from_slice(&pages.to_be_bytes());
        std::fs::write(world.work().join("beginning"), header).unwrap();
    };
    for (pages, why) in [
        (3, "it goes on behind its end"),
        (0, "its header doesn't say how long it is"),
        (u32::MAX, "stdin says that it has 18 TB, and there is room for "),
    ] {
        beginning(pages);
        let line = "cat beginning /dev/zero | piton import -";
        let endless = world.wait(world.shell(line).spawn().unwrap());
        assert!(endless.code == Some(1) && endless.stderr.contains(why), "{}", endless.whole());
    }
}

/// What would be gone at once isn't copied.
#[test]
fn nothing_is_copied_into_memory() {
    let (world, store) = world();
    let said = world.piton(["copy", &store, "memory:"]);
    assert_eq!(said.code, Some(2), "{}", said.whole());
    assert!(said.stderr.contains("what is copied into memory: is gone"), "{}", said.stderr);
}

/// Of an encrypted store nothing in clear stays in the folder for temporary files, even if the export is killed.
#[test]
fn a_killed_export_leaves_no_copy_in_clear() {
    let world = World::new();
    let temporary = world.root().join("temporary");
    std::fs::create_dir(&temporary).unwrap();
    let key = ["--key-file", "../key"];
    let piton = |arguments: &[&str]| world.piton(arguments.iter().chain(&key));
    assert_eq!(piton(&["init", "--encrypt"]).code, Some(0));
    world.write("flow.yml", crate::world::THREE_NODES);
    assert_eq!(piton(&["run", "flow.yml", "-i", "name=Aurelia", "--id", "r"]).code, Some(0));
    let mut command = world.command(["export", "r"].iter().chain(&key));
    command.env("TMPDIR", &temporary);
    let mut killed = 0;
    for when in [1, 4, 16] {
        killed += usize::from(strace::run(&command, KillAt::new(&["pwrite64"], when)).killed());
        wait_until(|| std::fs::read_dir(&temporary).unwrap().next().is_none());
    }
    assert!(killed > 0, "it was never killed");
    let whole =
        world.wait(command.stdout(std::fs::File::create(world.work().join("r.piton")).unwrap()).spawn().unwrap());
    assert_eq!(whole.stderr, "What was exported isn't encrypted: every person who has the file can read it.\n");
    assert!(std::fs::read_dir(&temporary).unwrap().next().is_none());
    let other = format!("sqlite:{}", world.root().join("other.db").display());
    assert_eq!(world.piton(["--store", &other, "import", "r.piton"]).code, Some(0));
}

/// A store of files and an encrypted one are repaired too.
#[test]
fn every_kind_of_store_is_repaired() {
    for encrypted in [false, true] {
        let world = World::new();
        let store = format!("file:{}", world.root().join("files").display());
        let key: &[&str] = if encrypted { &["--key-file", "../key"] } else { &[] };
        let piton = |verb: &[&str]| world.piton(["--store", &store].iter().chain(key).chain(verb));
        if encrypted {
            assert_eq!(piton(&["init", "--encrypt"]).code, Some(0));
        }
        for n in 0..3 {
            world.write("a.txt", &format!("{n}\n").repeat(2_000));
            assert_eq!(piton(&["save", "-m", &format!("number {n}")]).code, Some(0));
        }
        let runs = world.root().join("files/runs");
        let run = std::fs::read_dir(&runs)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .find(|path| !path.ends_with("piton.keys"))
            .unwrap();
        let last = std::fs::read_dir(run.join("entries")).unwrap().map(|entry| entry.unwrap().path()).max().unwrap();
        let mut bytes = std::fs::read(&last).unwrap();
        bytes[200] ^= 1;
        std::fs::write(&last, &bytes).unwrap();
        let found = piton(&["check"]);
        assert_eq!(found.code, Some(1), "{}", found.whole());
        let repaired = piton(&["check", "--repair", "--yes"]);
        assert_eq!(repaired.code, Some(0), "{}", repaired.whole());
        assert_eq!(piton(&["check", "--deep"]).code, Some(0));
        let list = piton(&["checkpoint", "list", "--json"]);
        assert_eq!(list.stdout.lines().count(), 2, "{}", list.whole());
        assert!(world.root().join("files.damaged-1").is_dir(), "the damaged one is kept");
    }
}

/// `status --json` shows what is in the store and what the command did, a check what it counted.
#[test]
fn the_status_shows_metrics() {
    let (world, store) = world();
    // What stays as it is is stored once.
    world.write("b.txt", &(0..5_000).map(|n| format!("{n}\n")).collect::<String>());
    for n in 0..3 {
        world.write("a.txt", &format!("short {n}"));
        assert_eq!(world.piton(["--store", &store, "save"]).code, Some(0));
    }
    let before = world.piton(["--store", &store, "status", "--json"]).json()["metrics"].clone();
    assert!(
        before["totals"]["packs"].as_u64() > Some(0) && before["totals"]["pack_bytes"].as_u64() > Some(100),
        "{before}"
    );
    let calls = before["calls"].as_array().unwrap();
    assert!(
        calls.iter().any(|call| call["call"] == "read" && call["count"].as_u64() > Some(0) && call["p99_us"].is_u64()),
        "{before}"
    );
    let sizes = world.piton(["--store", &store, "check", "--json"]).json()["sizes"].clone();
    assert!(sizes["logical"].as_u64() > sizes["unique"].as_u64(), "{sizes}");
    assert!(sizes["deduplication"].as_f64() > Some(1.0) && sizes["compression"].as_f64() > Some(0.0), "{sizes}");
    // One tiny checkpoint repeats nothing, and is no less than itself.
    let tiny = World::new();
    tiny.write("a.txt", "a");
    assert_eq!(tiny.piton(["save"]).code, Some(0));
    let sizes = tiny.piton(["check", "--json"]).json()["sizes"].clone();
    assert!(sizes["deduplication"].as_f64() >= Some(1.0), "{sizes}");
}

/// C5: what is due is done after any command that writes, not only after those that save files.
#[test]
fn due_work_is_done_after_a_run() {
    use piton_store::{Store as _, Upkeep as _};
    let world = World::new();
    let path = world.root().join("store.db");
    let store = format!("sqlite:{}", path.display());
    world.write("flow.yml", crate::world::THREE_NODES);
    let last = || {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let store =
                piton_store_sqlite::SqliteStore::open(&path, piton_store_sqlite::SqliteOptions::default()).unwrap();
            let note = store.note("retention/last").await.unwrap();
            store.close().await.unwrap();
            note
        })
    };
    assert_eq!(world.piton(["init", "--store", &store]).code, Some(0));
    assert_eq!(last(), None);
    let run = world.piton(["--store", &store, "run", "flow.yml", "-i", "name=Ada", "--id", "first"]);
    assert_eq!(run.code, Some(0), "{}", run.whole());
    let first = last();
    assert!(first.is_some(), "it was due, and was done");
    let run = world.piton(["--store", &store, "run", "flow.yml", "-i", "name=Ada", "--id", "second"]);
    assert_eq!(run.code, Some(0), "{}", run.whole());
    assert_eq!(last(), first, "once a day");
}

/// C5: a disk that is nearly full is a reason to look again, though not with every command.
#[test]
fn a_nearly_full_disk_makes_room() {
    use piton_store::{Bytes, Store as _, Upkeep as _};
    let world = World::new();
    let disk = piton_testing::scratch::tiny_tmpfs(8 << 20);
    let path = disk.path().join("store.db");
    let store = format!("sqlite:{}", path.display());
    world.write("a.txt", "one");
    assert_eq!(world.piton(["--store", &store, "save"]).code, Some(0));
    let with = |change: Option<String>| {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let store =
                piton_store_sqlite::SqliteStore::open(&path, piton_store_sqlite::SqliteOptions::default()).unwrap();
            if let Some(last) = change {
                store.set_note("retention/last", Some(Bytes::from(last))).await.unwrap();
            }
            let note = store.note("retention/last").await.unwrap().unwrap();
            store.close().await.unwrap();
            String::from_utf8(note.to_vec()).unwrap().parse::<i64>().unwrap()
        })
    };
    let first = with(None);
    // Two hours ago, which is the same day unless it is early: then it is due anyhow.
    let earlier = first - 2 * 3_600_000;
    with(Some(earlier.to_string()));
    let is_same_day = (earlier - 3 * 3_600_000) / 86_400_000 == (first - 3 * 3_600_000) / 86_400_000;
    world.write("a.txt", "two");
    assert_eq!(world.piton(["--store", &store, "save"]).code, Some(0));
    assert!(!is_same_day || with(None) == earlier, "there is room, and it was done today");
    with(Some(earlier.to_string()));
    std::fs::write(disk.path().join("ballast"), vec![1; 6_900_000]).unwrap();
    world.write("a.txt", "three");
    let saved = world.piton(["--store", &store, "save"]);
    assert_eq!(saved.code, Some(0), "{}", saved.whole());
    assert!(with(None) > earlier, "the disk is nearly full");
}
