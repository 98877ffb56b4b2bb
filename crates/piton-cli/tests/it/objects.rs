//! Stores in S3 and in a Redis by their URLs: the same verbs, credentials that are never shown, errors that say what to do.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};

use piton_testing::redis::{PASSWORD, RedisServer};
use piton_testing::s3::{BUCKET, KEY, S3Server};

use crate::world::{Said, World};

static S3: LazyLock<S3Server> = LazyLock::new(S3Server::start);
static REDIS: LazyLock<RedisServer> = LazyLock::new(RedisServer::durable);

fn name() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("t{}", NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Runs the binary with a store and these variables.
fn with(world: &World, url: &str, variables: &[(&str, String)], arguments: &[&str]) -> Said {
    let mut command = world.command(arguments);
    command.env("PITON_STORE", url).envs(variables.iter().map(|(name, value)| (name, value)));
    let said = world.wait(command.spawn().unwrap());
    let whole = said.whole();
    for secret in [KEY.0, KEY.1, PASSWORD, &PASSWORD.replace('+', "%2B")] {
        assert!(!whole.contains(secret), "{arguments:?}: {whole}");
    }
    said
}

fn the_verbs(world: &World, url: &str, variables: &[(&str, String)], shown: &str) {
    let piton = |arguments: &[&str]| {
        let said = with(world, url, variables, arguments);
        assert_eq!(said.code, Some(0), "{arguments:?}: {}", said.whole());
        said
    };
    let made = piton(&["init", "--json", "-v"]).json();
    assert_eq!(made["store"], shown);
    piton(&["run", "flow.yml", "-i", "name=Eve", "--id", "second"]);
    world.write("notes.txt", "one");
    piton(&["save", "-m", "first notes"]);
    world.write("notes.txt", "two");
    piton(&["guard", "--", "sh", "-c", "echo three > notes.txt"]);
    piton(&["undo", "--yes"]);
    assert_eq!(std::fs::read_to_string(world.work().join("notes.txt")).unwrap(), "two");
    assert_eq!(piton(&["status", "--json"]).json()["store"], shown);
    assert!(piton(&["ls", "-v"]).stdout.contains("second"));
    for verb in [&["show", "second"][..], &["log", "second"], &["check", "--deep"], &["gc", "--yes"], &["doctor"]] {
        piton(verb);
    }
}

/// The verbs of a run and of files, on S3 as on SQLite; the credentials are those of the usual variables.
#[test]
fn the_verbs_work_on_s3() {
    let world = World::with_run();
    let url = format!("s3://{BUCKET}/{}", name());
    the_verbs(&world, &url, &S3Server::settings_at(S3.port()), &url);
}

#[test]
fn the_verbs_work_on_redis() {
    let world = World::with_run();
    let prefix = name();
    let shown = format!("redis://127.0.0.1:{}/0?prefix={prefix}", REDIS.port());
    the_verbs(&world, &REDIS.url(&prefix), &[], &shown);
    // The password from the variable of the usual tool.
    let variable = ("REDISCLI_AUTH", PASSWORD.to_owned());
    assert_eq!(with(&world, &shown, &[variable], &["ls"]).code, Some(0));
}

/// Whatever keeps a store from being opened is said with what to do, and without a credential (promises 26 and 33).
#[test]
fn what_is_wrong_is_said_with_what_to_do() {
    let world = World::new();
    let none = RedisServer::start(&["--appendonly", "no", "--save", ""]);
    let keys = S3Server::settings_at(S3.port());
    let gone = S3Server::settings_at(1);
    let s3 = format!("s3://{BUCKET}/{}", name());
    let redis = REDIS.url("x");
    let open = format!("redis://127.0.0.1:{}/0?prefix=x", REDIS.port());
    let empty: &[(&str, String)] = &[];
    for (url, variables, code, words) in [
        (&*s3, empty, 1, &["no credentials are given", "AWS_ACCESS_KEY_ID"][..]),
        (&*s3, &gone, 1, &["can't be reached", "AWS_ENDPOINT_URL"]),
        ("s3://no-such-bucket/x", &keys, 1, &["the bucket of s3://no-such-bucket/x doesn't exist"]),
        ("s3://me:secret@bucket/x", &keys, 2, &["no user is named before it"]),
        (&none.url("x"), empty, 1, &["appendonly no", "durability=none"]),
        (&open, empty, 1, &["denied", "REDISCLI_AUTH"]),
        (&redis.replace("?prefix=x", "?prefix={x}"), empty, 2, &["a prefix has"]),
        (
            &format!("redis://:{}@127.0.0.1:1/0", PASSWORD.replace('+', "%2B")),
            empty,
            1,
            &["can't be reached", "redis-cli"],
        ),
    ] {
        let said = with(&world, url, variables, &["init"]);
        assert_eq!(said.code, Some(code), "{url}: {}", said.whole());
        for word in words {
            assert!(said.stderr.contains(word), "{url}: {word:?} is missing: {}", said.whole());
        }
        assert!(said.stderr.contains("hint: ") && !said.whole().contains("secret"), "{url}: {}", said.whole());
    }
    // On the command line every user could read it.
    let said = world.piton(["init", "--store", &redis]);
    assert_eq!(said.code, Some(2), "{}", said.whole());
    assert!(said.stderr.contains("REDISCLI_AUTH") && !said.whole().contains("r3dis"), "{}", said.whole());
    // What is accepted is said.
    let accepted = with(&world, &format!("{}&durability=none", none.url("x")), &[], &["init"]);
    assert_eq!(accepted.code, Some(0), "{}", accepted.whole());
    let status = with(&world, &format!("{}&durability=none", none.url("x")), &[], &["status"]);
    assert!(status.stdout.contains("durability=none"), "{}", status.whole());
}
