//! Real kills.

use piton_store::{Log as _, Span};
use piton_testing::id;

use crate::child::Process;
use crate::support::{Line, block_on, open};

/// Whatever a killed process was told is there afterwards, and at most one entry more.
#[test]
fn killed_processes_lose_nothing_that_was_acknowledged() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let mut total = 0;
    for round in 1..8_u64 {
        let mut process = Process::start("append", &path);
        let mut acknowledged = 0;
        for _ in 0..round * 13 % 70 + 1 {
            acknowledged = process.hear().unwrap().parse().unwrap();
        }
        process.kill();
        let store = open(&folder);
        let head = block_on(store.head(&id("killed"))).unwrap().unwrap();
        // It went on while we were listening; what it wrote to the pipe in between is unread.
        assert!(head.seq.0 >= acknowledged, "{} of {acknowledged}", head.seq.0);
        let entries = block_on(store.read(&id("killed"), Span::ALL)).unwrap();
        assert_eq!(entries.len() as u32, head.seq.0 + 1, "no gaps");
        total = head.seq.0;
    }
    println!("{total} entries over 7 kills");
}

/// A process that is killed while another has the store open leaves that one undisturbed.
#[test]
fn survivors_of_a_kill_go_on() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(&folder);
    let mut line = Line::relaxed("mine");
    block_on(line.grow(&store, 5));
    let mut process = Process::start("append", &folder.path().join("store.db"));
    for _ in 0..30 {
        process.hear().unwrap();
        block_on(line.grow(&store, 1));
    }
    process.kill();
    block_on(line.grow(&store, 5));
    assert_eq!(block_on(store.read(&line.run, Span::ALL)).unwrap().len(), 40);
    assert!(block_on(store.head(&id("killed"))).unwrap().unwrap().seq.0 >= 29);
}
