//! A store in PostgreSQL by its URL: the same verbs, passwords that are never shown, errors that say what to do.

use std::os::unix::fs::PermissionsExt;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};

use piton_testing::postgres::{PASSWORD, Server, USER, free_port};

use crate::world::{BINARY, Said, World};

/// The server of this process.
pub(crate) static SERVER: LazyLock<Server> = LazyLock::new(Server::start);

/// A name that no other test has: of a schema, a database, a role.
pub(crate) fn name() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("t{}", NEXT.fetch_add(1, Ordering::Relaxed))
}

/// The URL of a store without the password.
fn open_url(schema: &str) -> String {
    format!("postgres://{USER}@127.0.0.1:{}/{USER}?schema={schema}", SERVER.port())
}

/// Runs the binary with `PITON_STORE`.
pub(crate) fn with_store(world: &World, url: &str, arguments: &[&str]) -> Said {
    let mut command = world.command(arguments);
    world.wait(command.env("PITON_STORE", url).spawn().unwrap())
}

/// No form of the password is in what was said.
fn has_no_password(said: &Said) {
    let encoded = PASSWORD.replace('+', "%2B");
    let whole = said.whole();
    assert!(!whole.contains(PASSWORD) && !whole.contains(&encoded), "{whole}");
}

/// What was refused says why and what to do, and shows no password.
fn refused(said: &Said, code: i32, words: &[&str]) {
    has_no_password(said);
    assert_eq!(said.code, Some(code), "{}", said.whole());
    for word in words {
        assert!(said.stderr.contains(word), "{word:?} is missing: {}", said.whole());
    }
    assert!(said.stderr.contains("hint: "), "{}", said.whole());
}

/// The verbs of a run, a conversation with a person, a copy: on PostgreSQL as on SQLite.
#[test]
fn the_verbs_work_on_postgresql() {
    let world = World::with_run();
    let url = SERVER.url(&name());
    let piton = |arguments: &[&str]| {
        let said = with_store(&world, &url, arguments);
        has_no_password(&said);
        assert_eq!(said.code, Some(0), "{arguments:?}: {}", said.whole());
        said
    };
    let made = piton(&["init", "--json", "-v"]).json();
    assert_eq!(made["store"].as_str().unwrap().split('?').next(), open_url("").split('?').next());
    piton(&["run", "flow.yml", "-i", "name=Eve", "--id", "second"]);
    let status = piton(&["status", "--json"]).json();
    assert_eq!(status["runs"], 1, "{status}");
    assert!(piton(&["ls", "-v"]).stdout.contains("second"));
    for verb in [&["show", "second"][..], &["log", "second"], &["check", "--deep"], &["gc", "--yes"], &["doctor"]] {
        piton(verb);
    }
    // The run that was made on SQLite comes along, and a second copy has nothing to do.
    let mut folders = std::fs::read_dir(world.state()).unwrap().map(|folder| folder.unwrap().path().join("store.db"));
    let (home, from) = (world.root().join("home"), folders.find(|store| store.exists()).unwrap());
    let from = format!("sqlite:{}", from.display());
    let pass = home.join(".pgpass");
    std::fs::write(&pass, format!("127.0.0.1:*:*:{USER}:{PASSWORD}\n")).unwrap();
    std::fs::set_permissions(&pass, PermissionsExt::from_mode(0o600)).unwrap();
    let to = open_url(&name());
    for bytes in [true, false] {
        let copied = world.piton(["copy", &from, &to, "--json"]);
        assert_eq!(copied.code, Some(0), "{}", copied.whole());
        assert_eq!(copied.json()["bytes"].as_u64().unwrap() > 0, bytes, "{}", copied.whole());
    }
    let shown = world.piton(["show", "first", "--json", "--store", &to]).json();
    assert_eq!(shown["status"], "completed", "{shown}");
}

/// The password is neither in the arguments of a process nor in the variables of the programs that Piton starts.
#[test]
fn programs_are_given_no_password() {
    let world = World::new();
    let url = SERVER.url(&name());
    world.write(
        "flow.yml",
        "
nodes:
  - {id: in, data: {type: start}}
  - {id: look, data: {type: command, command: [sh, -c, 'env > seen; tr \"\\0\" \" \" < /proc/$PPID/cmdline >> seen']}}
  - {id: out, data: {type: end}}
edges: [{source: in, target: look}, {source: look, target: out}]
",
    );
    let look = "env > guarded; tr '\\0' ' ' < /proc/$PPID/cmdline >> guarded";
    for arguments in [&["run", "flow.yml"][..], &["guard", "--", "sh", "-c", look]] {
        let said = with_store(&world, &url, arguments);
        has_no_password(&said);
        assert_eq!(said.code, Some(0), "{}", said.whole());
    }
    for file in ["seen", "guarded"] {
        let seen = std::fs::read_to_string(world.work().join(file)).unwrap();
        assert!(seen.contains("PATH="), "{seen}");
        assert!(!seen.contains("sw0rdf"), "{seen}");
    }
    // A URL without a password is handed on, so that the program finds the store.
    let open = open_url(&name());
    std::fs::write(world.root().join("home/.pgpass"), format!("*:*:*:*:{PASSWORD}\n")).unwrap();
    std::fs::set_permissions(world.root().join("home/.pgpass"), PermissionsExt::from_mode(0o600)).unwrap();
    let said = with_store(&world, &open, &["guard", "--", "sh", "-c", "env > guarded"]);
    assert_eq!(said.code, Some(0), "{}", said.whole());
    assert!(world.lines("guarded").contains(&format!("PITON_STORE={open}")));
}

/// Where a password may come from, and where not.
#[test]
fn passwords_come_from_files_and_variables_only() {
    let world = World::new();
    let url = open_url(&name());
    refused(&with_store(&world, &url, &["init"]), 1, &["asks for a password", "~/.pgpass", "PGPASSFILE"]);
    let with_password = SERVER.url(&name());
    let on_the_line = world.piton(["init", "--store", &with_password]);
    refused(&on_the_line, 2, &["every user of this machine", "PITON_STORE"]);
    let copied = world.piton(["copy", "memory:", &with_password]);
    refused(&copied, 2, &["every user of this machine"]);

    let file = world.root().join("passwords");
    std::fs::write(&file, format!("127.0.0.1:{}:{USER}:{USER}:{PASSWORD}\n", SERVER.port())).unwrap();
    let by_file = || {
        let mut command = world.command(["init", "--store", &url]);
        world.wait(command.env("PGPASSFILE", &file).spawn().unwrap())
    };
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o644)).unwrap();
    refused(&by_file(), 4, &["can be read by other users", "chmod 600"]);
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o600)).unwrap();
    assert_eq!(by_file().code, Some(0), "{}", by_file().whole());
    std::fs::remove_file(&file).unwrap();
    refused(&by_file(), 1, &["can't read the password file"]);

    // A configuration that the user names may have it too, or say which variable has it.
    world.write("flow.yml", crate::world::THREE_NODES);
    world.write("piton.toml", "store = 'env:OURS'\n");
    let run = |store: &str| {
        let mut command = world.command(["run", "flow.yml", "-i", "name=a", "--config", "piton.toml"]);
        world.wait(command.env("OURS", store).spawn().unwrap())
    };
    let said = run(&with_password);
    has_no_password(&said);
    assert_eq!(said.code, Some(0), "{}", said.whole());
    let listed = with_store(&world, &with_password, &["ls", "--json"]).json();
    assert_eq!(listed["status"], "completed");
    refused(&run("postgres://me:sw0rdf+sh@"), 2, &["empty host"]);
}

/// Each way in which a store can't be opened has its words, and nothing of the password is in them.
#[test]
fn what_cannot_be_opened_says_what_to_do() {
    let world = World::new();
    let try_url = |url: &str| with_store(&world, url, &["init", "-v"]);
    let role = name();
    let database = name();
    SERVER.sql(&format!("CREATE ROLE {role} LOGIN PASSWORD '{PASSWORD}'"));
    SERVER.sql(&format!("CREATE DATABASE {database} ENCODING 'LATIN1' TEMPLATE template0"));
    let url = SERVER.url(&name());
    let wrong = "sw0rdf%2Bsh";
    refused(&try_url(&url.replace(wrong, "guess")), 1, &["password authentication failed", "PGPASSFILE"]);
    refused(&try_url(&url.replacen(USER, &role, 1)), 1, &["permission denied", "CREATE SCHEMA", "AUTHORIZATION"]);
    refused(&try_url(&url.replace(&format!("/{USER}?"), "/absent?")), 1, &["database", "createdb"]);
    let free = free_port().to_string();
    let port = SERVER.port().to_string();
    refused(&try_url(&url.replace(&port, &free)), 1, &["can't be reached", "pg_isready"]);
    refused(&try_url(&format!("{url}&sslmode=verify-full")), 1, &["can't be reached", "TLS"]);
    refused(&try_url(&url.replace(&format!("/{USER}?"), &format!("/{database}?"))), 1, &["LATIN1", "UTF8"]);
    refused(&try_url(&format!("{url}&blobs=bucket")), 2, &["blobs="]);
    refused(&try_url(&format!("{url}&blobs=s3://sw0rdf+sh@bucket")), 2, &["blobs="]);
    refused(&try_url(&format!("{url}&blobs=s3://bucket")), 1, &["no credentials are given", "AWS_ACCESS_KEY_ID"]);
    refused(&try_url(&format!("{url}&colour=red")), 2, &["colour"]);
    refused(&try_url("postgres://piton:sw0rdf+sh@127.0.0.1:port/x"), 2, &["postgres://USER@HOST/DATABASE"]);
    refused(&try_url(&url.replacen("postgres", "postgress", 1)), 2, &["postgress: is not known"]);
    let foreign = name();
    SERVER.sql(&format!("CREATE SCHEMA {foreign}; CREATE TABLE {foreign}.theirs(x int)"));
    refused(&try_url(&SERVER.url(&foreign)), 1, &["tables that Piton didn't make", "?schema="]);
    let lost = with_store(&world, &SERVER.url(&name()), &["ls"]);
    refused(&lost, 1, &["doesn't exist", "piton init"]);
    // A role that may look but not write, in a store that is there.
    let theirs = name();
    assert_eq!(with_store(&world, &SERVER.url(&theirs), &["init"]).code, Some(0));
    let read_only = SERVER.url(&theirs).replacen(USER, &role, 1);
    refused(&with_store(&world, &read_only, &["ls"]), 1, &["permission denied", "GRANT"]);
}

/// Negative control of the promise about passwords: the search finds one that a program says.
#[test]
#[should_panic(expected = "sw0rdf")]
fn a_password_that_is_said_is_found() {
    let world = World::new();
    let mut echo = world.program("sh", ["-c", &format!("test -x {BINARY} && echo {PASSWORD}")]);
    has_no_password(&world.wait(echo.spawn().unwrap()));
}

/// Promise 34 and item 4 of the team store: files are checkpointed, undone and guarded on a shared store; a second machine with a
/// folder of the same name keeps its own history, sees the first one's sessions and brings a snapshot into a folder of its own.
#[test]
fn files_are_kept_on_a_shared_store() {
    let (ours, theirs) = (World::new(), World::new());
    let url = SERVER.url(&name());
    let piton = |world: &World, arguments: &[&str]| {
        let said = with_store(world, &url, arguments);
        has_no_password(&said);
        assert_eq!(said.code, Some(0), "{arguments:?}: {}", said.whole());
        said
    };
    ours.write("a.txt", "one\n");
    let saved = piton(&ours, &["save", "-m", "mine", "--json"]).json();
    piton(&ours, &["guard", "--", "sh", "-c", "echo two > a.txt; echo new > b.txt"]);
    let session = piton(&ours, &["ls", "--kind", "guard", "--json"]).json()["run"].as_str().unwrap().to_owned();
    piton(&ours, &["undo", "--yes"]);
    assert_eq!((ours.lines("a.txt"), ours.work().join("b.txt").exists()), (vec!["one".to_owned()], false));
    piton(&ours, &["redo", "--yes"]);
    assert_eq!((ours.lines("a.txt"), ours.lines("b.txt")), (vec!["two".to_owned()], vec!["new".to_owned()]));
    let status = piton(&ours, &["status", "--json"]).json();
    assert!(status["changes"].as_array().unwrap().is_empty());
    // What belongs to the folder is on this machine, and nothing of the store is.
    assert!(ours.state().join("shared").is_dir() && !ours.work().join(".piton").exists());

    // Another member of the team.
    theirs.write("a.txt", "theirs\n");
    let seen = piton(&theirs, &["ls", "--json"]).stdout;
    assert!(seen.contains(&session), "{seen}");
    let checkpoint = saved["id"].as_str().unwrap();
    let brought = piton(&theirs, &["restore", checkpoint, "--into", "../brought", "--json"]).json();
    assert_eq!(brought["files"], 1, "{brought}");
    assert_eq!(std::fs::read_to_string(theirs.root().join("brought/a.txt")).unwrap(), "one\n");
    assert_eq!(theirs.lines("a.txt"), ["theirs"]);
    let again = with_store(&theirs, &url, &["restore", checkpoint, "--into", "../brought"]);
    assert_eq!(again.code, Some(4), "{}", again.whole());
    assert!(again.stderr.contains("new or empty folder"), "{}", again.whole());
    piton(&theirs, &["save", "-m", "theirs"]);
    piton(&theirs, &["check", "--deep"]);
    // Nothing of theirs is the newest of ours.
    assert_eq!(piton(&ours, &["status", "--json"]).json()["checkpoint"], status["checkpoint"]);
}

/// `blobs=`: large packs go to a bucket, and every verb works as before; a store says where its packs are to who names it without.
#[test]
fn large_packs_go_to_a_bucket() {
    use piton_testing::s3::{BUCKET, S3Server};

    let (world, s3) = (World::new(), S3Server::start());
    let schema = name();
    let plain = SERVER.url(&schema);
    let url = format!("{plain}&blobs=s3://{BUCKET}/packs");
    let with = |url: &str, arguments: &[&str]| {
        let mut command = world.command(arguments);
        command.env("PITON_STORE", url).envs(S3Server::settings_at(s3.port()));
        let said = world.wait(command.spawn().unwrap());
        has_no_password(&said);
        assert!(!said.whole().contains(piton_testing::s3::KEY.1), "{}", said.whole());
        said
    };
    let piton = |arguments: &[&str]| {
        let said = with(&url, arguments);
        assert_eq!(said.code, Some(0), "{arguments:?}: {}", said.whole());
        said
    };
    let mut content = vec![0; 3 << 20];
    piton_types::Random::fill(&piton_testing::SeededRandom::new(26), &mut content);
    std::fs::write(world.work().join("large.bin"), &content).unwrap();
    world.write("small.txt", "small");
    piton(&["save"]);
    let outside = || {
        SERVER.sql(&format!("SELECT count(*) > 0 AND sum(size) > 3000000 FROM {schema}.pack WHERE object IS NOT NULL"))
    };
    assert_eq!(outside(), "t");
    assert_eq!(SERVER.sql(&format!("SELECT max(octet_length(bytes)) < 1100000 FROM {schema}.pack")), "t");
    std::fs::write(world.work().join("large.bin"), "gone").unwrap();
    piton(&["restore", "@", "large.bin", "--yes"]);
    assert_eq!(std::fs::read(world.work().join("large.bin")).unwrap(), content);
    assert!(piton(&["check"]).stderr.contains("only the logs were read"));
    piton(&["check", "--deep"]);
    piton(&["gc", "--yes"]);
    // All of it goes to another store and comes back to the bucket.
    let copy = format!("sqlite:{}", world.root().join("copy.db").display());
    let open = format!("{}&blobs=s3://{BUCKET}/packs", open_url(&schema));
    std::fs::write(world.root().join("home/.pgpass"), format!("*:*:*:*:{PASSWORD}\n")).unwrap();
    std::fs::set_permissions(world.root().join("home/.pgpass"), PermissionsExt::from_mode(0o600)).unwrap();
    piton(&["copy", &open, &copy]);
    let other = format!("{}&blobs=s3://{BUCKET}/other", open_url(&name()));
    piton(&["copy", &copy, &other]);
    piton(&["check", "--deep", "--store", &other]);

    let places = "Everyone who uses the store names the same place";
    refused(&with(&plain, &["ls"]), 1, &["s3://team-bucket/packs", places]);
    refused(&with(&format!("{plain}&blobs=s3://{BUCKET}/elsewhere"), &["ls"]), 1, &["s3://team-bucket/packs", places]);
    let missing = format!("{}&blobs=s3://no-such-bucket/x", SERVER.url(&name()));
    refused(&with(&missing, &["init"]), 1, &["the bucket of s3://no-such-bucket/x", "Make the bucket first"]);
    // The bucket can't be reached: what is in the database can be looked at.
    let port = s3.port();
    drop(s3);
    let mut command = world.command(["ls"]);
    command.env("PITON_STORE", &url).envs(S3Server::settings_at(port));
    assert_eq!(world.wait(command.spawn().unwrap()).code, Some(0));
}

/// A check of a store on a server reads the logs and not what is in it; a deep one reads everything. Each finds what it should, and says
/// nothing of a sound store.
#[test]
fn a_check_reads_the_logs_and_a_deep_one_everything() {
    let world = World::new();
    let schema = name();
    let url = SERVER.url(&schema);
    let mut content = vec![0; 300_000];
    piton_types::Random::fill(&piton_testing::SeededRandom::new(7), &mut content);
    std::fs::write(world.work().join("file.bin"), &content).unwrap();
    assert_eq!(with_store(&world, &url, &["save"]).code, Some(0));
    world.write("flow.yml", crate::world::THREE_NODES);
    assert_eq!(with_store(&world, &url, &["run", "flow.yml", "-i", "name=a", "--id", "flow"]).code, Some(0));
    let check = |arguments: &[&str]| with_store(&world, &url, &[&["check"][..], arguments].concat());
    let is_well = |arguments: &[&str]| {
        let said = check(arguments);
        assert_eq!(said.code, Some(0), "{arguments:?}: {}", said.whole());
        said
    };
    let is_damaged = |arguments: &[&str], word: &str| {
        let said = check(arguments);
        assert_eq!(said.code, Some(1), "{arguments:?}: {}", said.whole());
        assert!(said.stdout.contains(word), "{word:?}: {}", said.whole());
    };
    assert!(is_well(&[]).stderr.contains("`piton check --deep` reads all"));
    assert_eq!(is_well(&["--json"]).json()["in_outline"], true);
    assert_eq!(is_well(&["--deep", "--json"]).json().get("in_outline"), None);
    is_well(&["flow"]);

    // Undone by doing it again.
    let flip = |table: &str, column: &str, place: u32, rows: &str| {
        SERVER.sql(&format!(
            "UPDATE {schema}.{table} SET {column} = set_byte({column}, {place}, get_byte({column}, {place}) # 1) WHERE {rows}"
        ));
    };
    flip("pack", "bytes", 1000, "octet_length(bytes) > 1000");
    is_well(&[]);
    is_damaged(&["--deep"], "damaged: staged pack");
    flip("pack", "bytes", 1000, "octet_length(bytes) > 1000");
    is_well(&["--deep"]);

    let of_flow = format!("seq = 1 AND run = (SELECT no FROM {schema}.run WHERE id = 'flow')");
    flip("entry", "entry", 20, &of_flow);
    is_damaged(&[], "run flow");
    is_damaged(&["flow"], "entry 1 of run flow");
    flip("entry", "entry", 20, &of_flow);
    is_well(&[]);
    SERVER.sql(&format!("DELETE FROM {schema}.entry WHERE {of_flow}"));
    is_damaged(&["flow"], "they are missing");
    SERVER.sql(&format!("DELETE FROM {schema}.pack"));
    is_damaged(&[], "it is missing");
}
