//! Files that are not what they should be. Nothing of it may block, follow a link or change anything.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use piton_store::{Log as _, Span, Store as _, StoreError, Upkeep as _};
use piton_store_sqlite::{SqliteOptions, SqliteStore};
use piton_testing::scratch::copy_tree;
use piton_types::Durability;

use crate::child::{Process, command};
use crate::support::{Line, block_on, open};

fn attempt(path: impl AsRef<Path>) -> StoreError {
    SqliteStore::open(path, SqliteOptions::default()).expect_err("it must be refused")
}

fn is_invalid(error: &StoreError, says: &str) -> bool {
    matches!(error, StoreError::Invalid { detail, .. } if detail.contains(says))
}

#[test]
fn things_that_are_not_files_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    assert!(Command::new("mkfifo").arg(at("pipe")).status().unwrap().success());
    let _socket = UnixListener::bind(at("socket")).unwrap();
    fs::create_dir(at("folder")).unwrap();
    drop(SqliteStore::open(at("real"), SqliteOptions::default()).unwrap());
    symlink(at("real"), at("link")).unwrap();
    symlink(at("nowhere"), at("dangling")).unwrap();
    for (name, says) in [
        ("pipe", "a pipe"),
        ("socket", "a socket"),
        ("folder", "a folder"),
        ("link", "a symbolic link"),
        ("dangling", "a symbolic link"),
    ] {
        let error = attempt(at(name));
        assert!(is_invalid(&error, says), "{name}: {error}");
        assert!(!at(&format!("{name}-lock")).exists());
    }
    assert!(is_invalid(&attempt("/dev/null"), "a device"));
    assert!(is_invalid(&attempt("/"), "doesn't name a file"));
    assert!(matches!(attempt("/dev/null/x"), StoreError::Unavailable { .. }));
    // The same for the files beside it.
    for suffix in ["-wal", "-shm", "-lock"] {
        let path = at("beside");
        assert!(Command::new("mkfifo").arg(at(&format!("beside{suffix}"))).status().unwrap().success());
        assert!(is_invalid(&attempt(&path), "a pipe"), "{suffix}");
        fs::remove_file(at(&format!("beside{suffix}"))).unwrap();
    }
}

#[test]
fn folders_may_be_links() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("there")).unwrap();
    symlink("there", folder.path().join("here")).unwrap();
    let store = SqliteStore::open(folder.path().join("here/store.db"), SqliteOptions::default()).unwrap();
    block_on(Line::relaxed("run").grow(&store, 1));
    assert!(folder.path().join("there/store.db").exists());
}

#[test]
fn other_files_are_refused_and_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    let database = |pragma: &str| {
        drop(fs::remove_file(&path));
        let conn = rusqlite::Connection::open(&path).unwrap();
        conn.execute_batch(&format!("{pragma}; CREATE TABLE t(x); INSERT INTO t VALUES (1);")).unwrap();
        drop(conn);
        fs::read(&path).unwrap()
    };
    let text = b"This is not a database, but it is longer than the header of one would be. ".repeat(3);
    for content in [
        text,
        b"short".to_vec(),
        vec![0; 8192],
        database("PRAGMA user_version = 1"),
        database("PRAGMA page_size = 1024"),
        database("PRAGMA journal_mode = WAL"),
    ] {
        fs::write(&path, &content).unwrap();
        let error = attempt(&path);
        assert!(is_invalid(&error, "not a Piton store"), "{error}");
        assert_eq!(fs::read(&path).unwrap(), content);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing else was made");
    }
}

#[test]
fn newer_formats_are_refused_and_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    drop(open(&folder));
    let mut content = fs::read(&path).unwrap();
    content[60..64].copy_from_slice(&9_u32.to_be_bytes());
    fs::write(&path, &content).unwrap();
    let error = attempt(&path);
    assert!(matches!(error, StoreError::TooNew { found: 9, known: 1, .. }), "{error}");
    assert_eq!(fs::read(&path).unwrap(), content);
}

#[test]
fn an_empty_file_becomes_a_store_and_a_missing_one_only_if_asked() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("deep/er/store.db");
    let careful = SqliteOptions::default().with_create(false);
    assert!(matches!(SqliteStore::open(&path, careful.clone()), Err(StoreError::NotFound { .. })));
    assert!(!folder.path().join("deep").exists());
    drop(SqliteStore::open(&path, SqliteOptions::default()).unwrap());
    assert_eq!(fs::metadata(path.parent().unwrap()).unwrap().permissions().mode() & 0o777, 0o700);
    drop(SqliteStore::open(&path, careful.clone()).unwrap());
    let empty = folder.path().join("empty.db");
    fs::write(&empty, b"").unwrap();
    assert!(matches!(SqliteStore::open(&empty, careful), Err(StoreError::NotFound { .. })));
    let store = SqliteStore::open(&empty, SqliteOptions::default()).unwrap();
    block_on(Line::relaxed("run").grow(&store, 1));
    drop(store);
    // But not if its WAL shows that it once was a store.
    let another = folder.path().join("another.db");
    fs::write(&another, b"").unwrap();
    fs::write(another.with_file_name("another.db-wal"), b"something").unwrap();
    assert!(matches!(attempt(&another), StoreError::Corrupt { .. }));
}

#[test]
fn rights_of_others_are_taken_away() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    drop(open(&folder));
    fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
    let store = open(&folder);
    block_on(Line::relaxed("run").grow(&store, 1));
    for name in ["store.db", "store.db-wal", "store.db-shm"] {
        assert_eq!(fs::metadata(folder.path().join(name)).unwrap().permissions().mode() & 0o777, 0o600, "{name}");
    }
}

/// Only root can give files away and be another user, so the other half of this is for root.
fn is_root() -> bool {
    let file = tempfile::NamedTempFile::new().unwrap();
    chown(file.path(), Some(65534), None).is_ok()
}

#[test]
fn files_of_other_users_are_refused() {
    if !is_root() {
        assert!(matches!(attempt("/etc/passwd"), StoreError::Denied { .. }));
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    drop(open(&folder));
    chown(&path, Some(65534), None).unwrap();
    let error = attempt(&path);
    assert!(matches!(&error, StoreError::Denied { detail, .. } if detail.contains("user 65534")), "{error}");
}

#[test]
fn what_cannot_be_written_can_be_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    block_on(Line::relaxed("run").grow(&open(&folder), 3));
    let user = is_root().then_some(65534);
    for entry in fs::read_dir(folder.path()).unwrap() {
        chown(entry.unwrap().path(), user, user).unwrap();
    }
    chown(folder.path(), user, user).unwrap();
    let look = || {
        let mut process = match user {
            Some(user) => Process::start_as(user, "look", &path),
            None => Process::start("look", &path),
        };
        process.hear().unwrap()
    };
    let set = |path: &Path, mode: u32| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    for (file, dir) in [(0o400, 0o700), (0o600, 0o500), (0o400, 0o500)] {
        set(&path, file);
        set(folder.path(), dir);
        let said = look();
        assert!(said.starts_with("Ok(1), then Err(ReadOnly"), "{file:o} in {dir:o}: {said}");
        set(folder.path(), 0o700);
    }
    set(&path, 0o000);
    let said = look();
    assert!(said.starts_with("Denied"), "{said}");
    set(&path, 0o600);
    let said = look();
    assert!(said.starts_with("Ok(1), then Ok"), "{said}");
}

/// Promise 4, on a real file system that is too small.
#[test]
fn work_goes_on_when_space_is_back() {
    let folder = tempfile::tempdir().unwrap();
    let child = command("fill", &folder.path().join("store.db"));
    let mut inside = Command::new("unshare");
    let root = if is_root() { "-m" } else { "-rm" };
    inside.args([root, "sh", "-c", "mount -t tmpfs -o size=1m none \"$0\" && exec \"$@\""]).arg(folder.path());
    inside.arg(child.get_program()).args(child.get_args());
    inside.envs(child.get_envs().filter_map(|(key, value)| Some((key, value?))));
    let output = inside.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        said.contains("full true, readable true, true entries, again Ok(())"),
        "{said}\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// Deletes the store in a folder.
fn delete_all(folder: &tempfile::TempDir) {
    for entry in fs::read_dir(folder.path()).unwrap() {
        fs::remove_file(entry.unwrap().path()).unwrap();
    }
}

/// Nothing that was written to a deleted store is acknowledged as durable.
#[test]
fn a_deleted_store_acknowledges_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(&folder);
    let mut line = Line::relaxed("run");
    line.durability = Durability::Durable;
    block_on(line.grow(&store, 3));
    delete_all(&folder);
    let poisoned = |done: Result<(), StoreError>| {
        assert!(matches!(&done, Err(StoreError::Poisoned { cause }) if cause.contains("deleted")), "{done:?}");
    };
    poisoned(block_on(line.append(&store)));
    line.durability = Durability::Relaxed;
    poisoned(block_on(line.append(&store)));
}

/// Nor by the first sync of a handle, if there is another store in its place by then.
#[test]
fn a_store_in_the_place_of_another_is_not_synced_for_it() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(&folder);
    let mut line = Line::relaxed("run");
    block_on(line.grow(&store, 3));
    delete_all(&folder);
    let other = open(&folder);
    let mut another = Line { durability: Durability::Durable, ..Line::relaxed("other") };
    block_on(another.grow(&other, 3));
    line.durability = Durability::Durable;
    let appended = block_on(line.append(&store));
    assert!(matches!(appended, Err(StoreError::Poisoned { .. })), "{appended:?}");
}

#[test]
fn the_url_names_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let url = open(&folder).url();
    assert!(url.starts_with("sqlite:/") && url.ends_with("/store.db"), "{url}");
}

/// A store that is copied with any tool while it is in use, and two with the same id: each goes its own way. What a copy
/// that was made in the middle of a write has is a beginning of every run, or it is said that it isn't whole.
#[test]
fn a_copy_of_a_store_in_use_is_a_store_or_is_refused() {
    let in_memory = || tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    let (folder, copies) = (in_memory(), in_memory());
    let (mut opened, mut refused) = (0, 0);
    block_on(async {
        let store = open(&folder);
        let mut line = Line::relaxed("one");
        line.grow(&store, 5).await;
        let quiet = copies.path().join("quiet");
        fs::create_dir(&quiet).unwrap();
        copy_tree(folder.path(), &quiet).unwrap();
        let other = SqliteStore::open(quiet.join("store.db"), SqliteOptions::default()).unwrap();
        let mut there = Line::relaxed("one");
        there.head = other.head(&there.run).await.unwrap();
        assert_eq!(there.head, line.head, "no process wrote while it was copied");
        there.grow(&other, 2).await;
        line.grow(&store, 1).await;
        assert_eq!(store.read(&line.run, Span::ALL).await.unwrap().len(), 6);
        assert_eq!(other.read(&line.run, Span::ALL).await.unwrap().len(), 7);
    });
    let busy = open(&folder);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut line = Line::relaxed("busy");
            line.size = 2_000;
            while !stop.load(Ordering::Relaxed) {
                block_on(line.grow(&busy, 2));
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
        });
        for n in 0..12 {
            let to = copies.path().join(n.to_string());
            fs::create_dir(&to).unwrap();
            // The WAL may vanish while it is copied, and come back.
            drop(copy_tree(folder.path(), &to));
            let Ok(copy) = SqliteStore::open(to.join("store.db"), SqliteOptions::default()) else {
                refused += 1;
                continue;
            };
            let read = block_on(copy.read(&piton_testing::id("busy"), Span { packs: true, ..Span::ALL }));
            let whole = block_on(copy.inspect()).unwrap().is_empty();
            match read {
                Ok(records) if whole => {
                    opened += 1;
                    let mut line = Line::relaxed("busy");
                    line.size = 2_000;
                    for record in records {
                        let commit = line.next();
                        assert_eq!((record.seq, record.hash, &record.pack), (commit.seq, commit.hash, &commit.pack));
                        line.advance(&commit);
                    }
                }
                Ok(_) | Err(StoreError::Corrupt { .. } | StoreError::NotFound { .. }) => refused += 1,
                Err(other) => panic!("copy {n}: {other}"),
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    println!("copies of a store in use: {opened} whole, {refused} refused");
    assert!(opened > 0, "{refused} of 12 were refused");
}

/// A store that was emptied doesn't become a new one without a word.
#[test]
fn an_emptied_store_is_damaged() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    block_on(async {
        let store = open(&folder);
        Line::relaxed("run").grow(&store, 3).await;
        store.close().await.unwrap();
    });
    fs::write(&path, "").unwrap();
    for create in [true, false] {
        let opened = SqliteStore::open(&path, SqliteOptions::default().with_create(create));
        assert!(matches!(opened, Err(StoreError::Corrupt { .. })), "{create}");
    }
}

/// A WAL that claims a terabyte and has nothing in it is refused at once; the control is one that is long by itself, which
/// is read.
#[test]
fn a_hollow_wal_is_refused_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let (path, wal) = (folder.path().join("store.db"), folder.path().join("store.db-wal"));
    block_on(async {
        let store = open(&folder);
        Line::relaxed("run").grow(&store, 3).await;
        store.close().await.unwrap();
    });
    fs::write(&wal, vec![0; 1 << 20]).unwrap();
    drop(SqliteStore::open(&path, SqliteOptions::default()).unwrap());
    fs::File::create(&wal).unwrap().set_len(1 << 40).unwrap();
    let error = attempt(&path);
    assert!(matches!(&error, StoreError::Corrupt { detail, .. } if detail.contains("almost empty")), "{error:?}");
    assert_eq!(fs::metadata(&wal).unwrap().len(), 1 << 40, "and left alone");
}

/// A file of the store that is also one elsewhere is refused, and the other stays as it is; without it the store opens.
#[test]
fn a_file_with_another_name_is_refused_and_left_alone() {
    for suffix in ["", "-wal", "-shm", "-lock"] {
        let folder = tempfile::tempdir().unwrap();
        let (path, canary) = (folder.path().join("store.db"), folder.path().join("canary"));
        block_on(async {
            let store = open(&folder);
            Line::relaxed("run").grow(&store, 3).await;
            store.close().await.unwrap();
        });
        let place = folder.path().join(format!("store.db{suffix}"));
        if suffix.is_empty() {
            fs::rename(&place, &canary).unwrap();
        } else {
            fs::write(&canary, "alive").unwrap();
            let _ = fs::remove_file(&place);
        }
        fs::hard_link(&canary, &place).unwrap();
        let before = (fs::read(&canary).unwrap(), fs::metadata(&canary).unwrap().permissions());
        let error = attempt(&path);
        assert!(is_invalid(&error, "more than one name"), "{suffix}: {error:?}");
        assert_eq!((fs::read(&canary).unwrap(), fs::metadata(&canary).unwrap().permissions()), before, "{suffix}");
        fs::remove_file(if suffix.is_empty() { &canary } else { &place }).unwrap();
        SqliteStore::open(&path, SqliteOptions::default()).unwrap();
    }
}
