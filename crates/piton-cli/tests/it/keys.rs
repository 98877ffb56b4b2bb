//! Encrypted stores and stores of files, from outside. F11, promises 22, 26 and 28.

use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use crate::world::{THREE_NODES, World};

/// Every file below, with its content.
fn files(folder: &Path) -> Vec<(std::path::PathBuf, Vec<u8>)> {
    let (mut found, mut folders) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => folders.push(path),
                false => found.push((path.clone(), std::fs::read(path).unwrap())),
            }
        }
    }
    found.sort();
    found
}

fn mentions(files: &[(std::path::PathBuf, Vec<u8>)], text: &str) -> bool {
    files.iter().any(|(_, bytes)| bytes.windows(text.len()).any(|window| window == text.as_bytes()))
}

/// The whole way with a key file: made, needed, wrong, rotated; on SQLite and on files.
#[test]
fn an_encrypted_store_needs_its_key() {
    for store in ["sqlite:../s/store.db", "file:../s"] {
        let world = World::new();
        std::fs::create_dir(world.root().join("s")).unwrap();
        std::fs::set_permissions(world.root().join("s"), std::fs::Permissions::from_mode(0o700)).unwrap();
        world.write("flow.yml", THREE_NODES);
        let piton = |arguments: &[&str]| {
            let mut all = arguments.to_vec();
            all.extend(["--store", store]);
            world.piton(all)
        };
        let made = piton(&["init", "--encrypt", "--key-file", "../key", "--json"]);
        assert_eq!((made.code, made.json()["encrypted"].as_bool()), (Some(0), Some(true)), "{}", made.stderr);
        let key = world.root().join("key");
        assert_eq!(std::fs::metadata(&key).unwrap().permissions().mode() & 0o777, 0o600);
        let run = piton(&["run", "flow.yml", "-i", "name=Aurelia", "--id", "secret-run", "--key-file", "../key"]);
        assert_eq!(run.code, Some(0), "{}", run.stderr);
        let before = files(&world.root().join("s"));
        assert!(!mentions(&before, "Aurelia") && !mentions(&before, "flow.yml"));

        let bare = piton(&["log"]);
        assert_eq!(bare.code, Some(1));
        assert!(bare.stderr.contains("encrypted, and no key was given"), "{}", bare.stderr);
        assert_eq!(piton(&["init", "--encrypt", "--key-file", "../key"]).code, Some(0), "it is left as it is");
        world.piton(["init", "--store", "sqlite:../other.db", "--encrypt", "--key-file", "../other"]);
        let wrong = piton(&["log", "--key-file", "../other"]);
        assert_eq!(wrong.code, Some(1));
        assert!(wrong.stderr.contains("this key doesn't open it"), "{}", wrong.stderr);
        std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o644)).unwrap();
        let open = piton(&["log", "--key-file", "../key"]);
        assert!(open.code == Some(1) && open.stderr.contains("mode 644"), "{}", open.stderr);
        std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600)).unwrap();

        let rotated = piton(&["key", "rotate", "--key-file", "../key", "--new-key-file", "../new"]);
        assert_eq!(rotated.code, Some(0), "{}", rotated.stderr);
        assert_eq!(piton(&["log", "--key-file", "../key"]).code, Some(1));
        let shown = piton(&["show", "secret-run", "--key-file", "../new", "--json"]);
        assert_eq!(shown.json()["status"], "completed");
    }
}

/// With a key no store is made in clear, and a user who has one in clear is told so.
#[test]
fn a_key_that_is_not_used_is_told_of() {
    let world = World::new();
    world.write("flow.yml", THREE_NODES);
    let elsewhere = ["--store", "sqlite:../clear.db"];
    let with_key = |verb: &[&str]| world.piton(verb.iter().chain(&["--key-file", "../key"]));
    let flow = ["run", "flow.yml", "-i", "name=Aurelia"];
    for made in [&flow[..], &["save"], &["init"], &["init", "--here"], &[&flow[..], &elsewhere].concat()] {
        let refused = with_key(made);
        assert_eq!(refused.code, Some(1), "{}", refused.stderr);
        assert!(refused.stderr.contains("--encrypt --key-file FILE`"), "{}", refused.stderr);
        assert!(!world.root().join("clear.db").exists() && !world.work().join(".piton").exists());
        assert!(world.piton(["log"]).stderr.contains("there is no store"), "nothing was made");
    }
    assert_eq!(world.piton(flow).code, Some(0));
    let here = with_key(&["init", "--here"]);
    assert!(here.code == Some(1) && !world.work().join(".piton").exists(), "{}", here.stderr);
    let (from, clear) = ("sqlite:../from.db", "sqlite:../clear.db");
    assert_eq!(world.piton(flow.iter().chain(&["--store", from])).code, Some(0));
    let copy = |key: &[&str]| world.piton(["copy", from, clear].iter().chain(key));
    let none = copy(&["--to-key-file", "../key"]);
    assert!(none.code == Some(1) && none.stderr.contains("no store at sqlite:../clear.db"), "{}", none.stderr);
    assert!(!world.root().join("clear.db").exists());
    let made = world.piton(["init", "--store", "sqlite:../locked.db", "--encrypt", "--key-file", "../locked.key"]);
    assert_eq!(made.code, Some(0), "{}", made.stderr);
    let locked = world.piton(["copy", from, "sqlite:../locked.db"]);
    assert!(locked.code == Some(1) && locked.stderr.contains("`--to-key-file FILE`"), "{}", locked.stderr);
    assert_eq!(copy(&[]).code, Some(0));
    let refused = copy(&["--to-key-file", "../key"]);
    assert_ne!(refused.code, Some(0));
    assert!(refused.stderr.contains("sqlite:../clear.db isn't encrypted"), "{}", refused.stderr);
    std::fs::remove_file(world.root().join("clear.db")).unwrap();
    std::fs::write(world.root().join("bad"), "no key").unwrap();
    let bad = world.piton(["init", "--store", "sqlite:../clear.db", "--encrypt", "--key-file", "../bad"]);
    assert!(bad.code == Some(1) && !world.root().join("clear.db").exists(), "{:?} {}", bad.code, bad.stderr);
    let run = with_key(&flow);
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    assert!(run.stderr.contains("this store isn't encrypted, and the key isn't used"), "{}", run.stderr);
    assert!(!world.piton(["log"]).stderr.contains("encrypted"), "nobody gave one");
}

/// `ls --all` says of a store that it can't open no more than that it is encrypted, and lists the others.
#[test]
fn all_folders_are_listed_though_one_is_encrypted() {
    let world = World::with_run();
    let secret = world.root().join("Vermeer-heist");
    std::fs::create_dir(&secret).unwrap();
    let piton = |arguments: &[&str]| world.piton_in(&secret, arguments);
    assert_eq!(piton(&["init", "--encrypt", "--key-file", "../key"]).code, Some(0));
    assert_eq!(piton(&["save", "--key-file", "../key"]).code, Some(0));
    assert_eq!(piton(&["init", "--encrypt", "--store", "sqlite:../s.db", "--key-file", "../other"]).code, Some(0));
    for (key, why) in [(&[][..], "no key was given"), (&["--key-file", "../other"][..], "this key doesn't open it")] {
        let listed = world.piton([&["ls", "--all", "--json"], key].concat());
        assert_eq!((listed.code, &listed.json()["id"]), (Some(0), &"first".into()), "{}", listed.stderr);
        assert!(
            listed.stderr.contains(&format!("is encrypted, and {why}: its runs aren't listed")),
            "{}",
            listed.stderr
        );
        assert!(!listed.stderr.contains("Vermeer"), "{}", listed.stderr);
    }
    let listed = world.piton(["ls", "--all", "--json", "--key-file", "../key"]);
    assert_eq!(listed.stdout.lines().count(), 2, "{}", listed.stderr);
}

/// Passphrases from a variable and a program, in bytes of any encoding.
#[test]
fn a_passphrase_may_be_any_bytes_and_come_from_a_program() {
    let world = World::new();
    let store = ["--store", "sqlite:../s.db"];
    let latin = std::ffi::OsStr::from_bytes(b"gr\xfc\xdfe");
    let run = |arguments: &[&str], name: &str, value: &std::ffi::OsStr| {
        let output = world.command(arguments.iter().chain(&store)).env(name, value).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let made = run(&["init", "--encrypt", "--passphrase"], "PITON_PASSPHRASE", latin);
    assert_eq!(made.0, Some(0), "{}", made.1);
    assert_eq!(run(&["log"], "PITON_PASSPHRASE", latin).0, Some(0));
    let unicode = run(&["log"], "PITON_PASSPHRASE", "grüße".as_ref());
    assert!(unicode.0 == Some(1) && unicode.1.contains("this passphrase doesn't open it"), "{}", unicode.1);
    let program = "printf 'gr\\374\\337e\\n'";
    assert_eq!(run(&["log"], "PITON_KEY_COMMAND", program.as_ref()).0, Some(0));
    let failing = run(&["log"], "PITON_KEY_COMMAND", "exit 3".as_ref());
    assert!(failing.0 == Some(1) && failing.1.contains("PITON_KEY_COMMAND failed"), "{}", failing.1);
    let nothing = world.piton(["init", "--encrypt", "--store", "sqlite:../t.db"]);
    assert_eq!(nothing.code, Some(2), "{}", nothing.stderr);
    assert!(!world.root().join("t.db").exists());
}

/// A store of files can be read with any tool, holds the folder's checkpoints too, and is its owner's alone.
#[test]
fn a_store_of_files_can_be_read() {
    let world = World::new();
    world.write("flow.yml", THREE_NODES);
    let store = ["--store", "file:../runs"];
    let piton = |arguments: &[&str]| world.piton(arguments.iter().chain(&store));
    assert_eq!(piton(&["run", "flow.yml", "-i", "name=Ada", "--id", "First"]).code, Some(0));
    assert_eq!(piton(&["show", "First", "--json"]).json()["status"], "completed");
    let folder = world.root().join("runs/runs/~first");
    let state: serde_json::Value = serde_json::from_slice(&std::fs::read(folder.join("state.json")).unwrap()).unwrap();
    assert_eq!(state["run"]["status"], "completed");
    let history = std::fs::read_to_string(folder.join("history.jsonl")).unwrap();
    let lines: Vec<serde_json::Value> = history.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines[0]["kind"], "created");
    assert_eq!(lines.last().unwrap()["seq"], lines.len() - 1);
    let saved = piton(&["save", "-m", "files too"]);
    assert_eq!(saved.code, Some(0), "{}", saved.stderr);
    world.write("flow.yml", "changed");
    let restored = piton(&["restore", "@", "--yes"]);
    assert_eq!(restored.code, Some(0), "{}", restored.stderr);
    assert_eq!(std::fs::read_to_string(world.work().join("flow.yml")).unwrap(), THREE_NODES);
    for (path, _) in files(&world.root().join("runs")) {
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o077, 0, "{}", path.display());
    }
    for (url, message) in [("file:", "the path is missing"), ("file://x", "no slashes of its own")] {
        let said = world.piton(["log", "--store", url]);
        assert!(said.code == Some(2) && said.stderr.contains(message), "{}", said.stderr);
    }
    assert_eq!(world.piton(["log", "--store", "file:../none"]).code, Some(1));
    let foreign = world.piton(["init", "--store", "file:."]);
    assert!(foreign.code == Some(1) && foreign.stderr.contains("something else"), "{}", foreign.stderr);
}

/// Keys in files are told, or kept out of the snapshot, if the user wants that.
#[test]
fn keys_in_files_are_reported_or_left_out() {
    let world = World::new();
    for (n, (wanted, secrets, excluded)) in [("", 0, 0), ("report", 1, 0), ("exclude", 1, 1)].into_iter().enumerate() {
        world.write("settings", &format!("aws = AKIA{} # {n}\n", "ABCDEFGHIJ234567"));
        let output = world.command(["save", "--json"]).env("PITON_SECRETS", wanted).output().unwrap();
        let said: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(said["secrets"].as_array().unwrap().len(), secrets, "{wanted}: {said}");
        assert_eq!(said["excluded"], excluded, "{wanted}: {said}");
    }
    let wrong = world.command(["save"]).env("PITON_SECRETS", "maybe").output().unwrap();
    assert_eq!(wrong.status.code(), Some(2));
}
/// A key that opens the store already is no other key: a rotation to it is refused, for it would change nothing.
#[test]
fn a_store_is_not_rotated_to_the_key_that_it_has() {
    let world = World::new();
    let store = ["--store", "sqlite:../s.db"];
    let piton = |verb: &[&str]| world.piton(verb.iter().chain(&store));
    assert_eq!(piton(&["init", "--encrypt", "--key-file", "../key"]).code, Some(0));
    let same = piton(&["key", "rotate", "--key-file", "../key", "--new-key-file", "../key"]);
    insta::assert_snapshot!(same.whole(), @r"
    --- stderr
    error: the new key opens the store already, and nothing was changed

    hint: name a file that isn't there yet with `--new-key-file FILE`: a new key is made in it.
    --- exit 1
    ");
    std::fs::copy(world.root().join("key"), world.root().join("copy")).unwrap();
    assert_eq!(piton(&["key", "rotate", "--key-file", "../key", "--new-key-file", "../copy"]).code, Some(1));
    assert_eq!(piton(&["log", "--key-file", "../key"]).code, Some(0));
    let with = |verb: &[&str], variables: &[(&str, &str)]| {
        let output = world.command(verb.iter().chain(&store)).envs(variables.iter().copied()).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let (code, said) =
        with(&["key", "rotate", "--new-passphrase", "--key-file", "../key"], &[("PITON_PASSPHRASE", "old")]);
    assert_eq!(code, Some(0), "{said}");
    let (code, said) = with(&["key", "rotate", "--new-passphrase"], &[("PITON_PASSPHRASE", "old")]);
    assert!(code == Some(1) && said.contains("PITON_KEY_COMMAND"), "{said}");
    let both = [("PITON_KEY_COMMAND", "echo old"), ("PITON_PASSPHRASE", "new")];
    let (code, said) = with(&["key", "rotate", "--new-passphrase"], &both);
    assert_eq!(code, Some(0), "as the hint says: {said}");
    assert_eq!(with(&["log"], &[("PITON_PASSPHRASE", "new")]).0, Some(0));
}

/// Promise 26 for what the folder itself is called: neither the store nor what is kept beside it, in names or contents,
/// tells whose store it is. Beside a plain store the same search finds it.
#[test]
fn the_folder_of_an_encrypted_store_is_named_nowhere() {
    for encrypted in [true, false] {
        for here in [false, true] {
            let world = World::new();
            let folder = world.root().join("Vermeer-heist");
            std::fs::create_dir(&folder).unwrap();
            let upstream = world.root().join("upstream");
            for line in [
                format!(
                    "git init -q -b main {0} && cd {0} && git config user.email a@b.c && git config user.name a",
                    upstream.display()
                ),
                format!("cd {} && git commit -q --allow-empty -m one", upstream.display()),
                format!("git clone -q {} {}", upstream.display(), folder.display()),
            ] {
                assert!(world.program("sh", ["-c", &line]).status().unwrap().success(), "{line}");
            }
            std::fs::write(folder.join("flow.yml"), THREE_NODES).unwrap();
            let piton = |arguments: &[&str]| {
                let mut command = world.command(arguments);
                command.current_dir(&folder);
                if encrypted {
                    command.env("PITON_KEY_FILE", world.root().join("key"));
                }
                let output = command.output().unwrap();
                assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
            };
            let mut init = vec!["init"];
            init.extend(encrypted.then_some("--encrypt"));
            init.extend(here.then_some("--here"));
            piton(&init);
            piton(&["save", "-m", "first"]);
            piton(&["run", "flow.yml", "-i", "name=Ada", "--files"]);
            piton(&["guard", "--", "sh", "-c", "echo new > made"]);
            piton(&["lease", "take", "made"]);
            piton(&["drift"]);
            piton(&["undo", "--yes"]);
            piton(&["gc", "--yes"]);
            let mut kept = files(&world.state());
            if here {
                kept.extend(files(&folder.join(".piton")));
            }
            let named: Vec<_> = kept
                .iter()
                .filter(|(path, bytes)| {
                    // Where the user has put it is in its path, of course.
                    let path = path.strip_prefix(&folder).unwrap_or(path);
                    mentions(&[(path.to_owned(), bytes.clone())], "Vermeer")
                        || path.to_string_lossy().contains("Vermeer")
                })
                .map(|(path, _)| path)
                .collect();
            assert_eq!(named.is_empty(), encrypted, "here: {here}, {named:?} of {}", kept.len());
        }
    }
}
