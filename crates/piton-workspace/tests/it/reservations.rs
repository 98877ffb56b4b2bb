//! Reservations. W9, promises 12 and 14.

use std::sync::Arc;
use std::time::Duration;

use piton_runtime::Context;
use piton_types::Holder;
use piton_workspace::{
    IsDead, RelPath, ReservationError, Reservations, ReserveMode, Take, Workspace, WorkspaceError, WriteError,
};

use crate::world::{World, context};

pub(crate) fn path(text: &str) -> RelPath {
    RelPath::new(text.as_bytes()).unwrap()
}

/// The workspace as another process has it.
fn as_holder(world: &World, holder: Holder) -> Workspace {
    let context = Context { holder, ..context(&world.store) };
    Workspace::open(&context, &world.root(), world.options.clone()).unwrap()
}

pub(crate) fn holder(pid: u32) -> Holder {
    Holder { host: "here".into(), boot: "first".into(), pid, started: 1 }
}

/// Process 13 is dead.
fn book(world: &World) -> Reservations {
    let is_dead: IsDead = Arc::new(|holder| holder.pid == 13);
    as_holder(world, holder(1)).reservations(is_dead)
}

fn write(text: &str) -> (RelPath, ReserveMode) {
    (path(text), ReserveMode::Write)
}

fn read(text: &str) -> (RelPath, ReserveMode) {
    (path(text), ReserveMode::Read)
}

fn is_held_by(outcome: Result<impl std::fmt::Debug, ReservationError>, owner: &str) -> bool {
    matches!(outcome, Err(ReservationError::Held { held }) if held.iter().any(|held| held.owner == owner))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_path_has_many_readers_or_one_writer_and_a_folder_stands_for_what_is_in_it() {
    let world = World::new();
    let book = book(&world);
    let (ann, bob) = (Take::by("ann"), Take::by("bob"));
    let first = book.take(&[read("src/a")], &ann).await.unwrap();
    let second = book.take(&[read("src/a")], &bob).await.unwrap();
    assert!(second[0].fence > first[0].fence);
    assert!(is_held_by(book.take(&[write("src/a")], &bob).await, "ann"));
    book.give_back(&first).await.unwrap();
    let alone = book.take(&[write("src/a")], &bob).await.unwrap();
    assert!(is_held_by(book.take(&[read("src")], &ann).await, "bob"), "the folder has it");
    assert!(is_held_by(book.take(&[write("src/a/b")], &ann).await, "bob"));
    assert!(is_held_by(book.take(&[write("doc"), read("src/a")], &ann).await, "bob"));
    assert_eq!(book.list().await.unwrap().len(), 1, "all or none: doc wasn't taken");
    assert!(is_held_by(book.check_write(&path("src/a"), "ann").await, "bob"));
    book.check_write(&path("src/a"), "bob").await.unwrap();
    book.check_write(&path("src/b"), "ann").await.unwrap();
    assert!(
        is_held_by(book.check_write(&path("src"), "ann").await, "bob"),
        "to replace the folder is to write the file"
    );
    book.give_back(&alone).await.unwrap();
    book.take(&[write("src")], &ann).await.unwrap();
    assert_eq!(book.release("ann", &[]).await.unwrap().len(), 1);
    assert!(book.list().await.unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_over_can_be_taken_by_others_and_the_old_holder_is_told() {
    let world = World::new();
    let book = book(&world);
    let short = Take { lasting: Duration::from_millis(30), ..Take::by("ann") };
    let old = book.take(&[write("a")], &short).await.unwrap();
    let renewed = book.renew(&old, Duration::from_millis(60)).await.unwrap();
    assert_eq!(renewed[0].fence, old[0].fence);
    assert!(renewed[0].expires_at > old[0].expires_at);
    let waiting = Take { wait: Duration::from_secs(20), ..Take::by("bob") };
    let new = book.take(&[write("a")], &waiting).await.unwrap();
    assert!(new[0].fence > old[0].fence);
    let over = book.renew(&old, Duration::from_secs(9)).await;
    assert!(matches!(over, Err(ReservationError::Over { .. })), "{over:?}");
    // Promise 12: even if the old holder never asks, its write is refused, in the same act.
    world.write("a", "0\n");
    let late = world.workspace().optimistic().by(&book, &old[0]);
    let version = late.acquire(&path("a")).await.unwrap();
    let refused = late.check_and_commit(&version, "late\n").await;
    assert!(matches!(refused, Err(WriteError::Reserved(ReservationError::Over { .. }))), "{refused:?}");
    let right = world.workspace().optimistic().by(&book, &new[0]);
    right.check_and_commit(&version, "in time\n").await.unwrap();
    assert_eq!(world.read("a"), "in time\n");
    let other = world.workspace().optimistic().by(&book, piton_workspace::WriteRight::Owner("cyd".into()));
    let version = other.acquire(&path("a")).await.unwrap();
    assert!(matches!(
        other.check_and_commit(&version, "x").await,
        Err(WriteError::Reserved(ReservationError::Held { .. }))
    ));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_dead_and_those_of_another_boot_hold_nothing() {
    let world = World::new();
    let book = book(&world);
    let dead = Take { holder: Some(holder(13)), ..Take::by("dead") };
    book.take(&[write("a")], &dead).await.unwrap();
    book.take(&[write("a")], &Take::by("next")).await.unwrap();
    let rebooted = Holder { boot: "second".into(), ..holder(1) };
    let later = as_holder(&world, rebooted).reservations(Arc::new(|_| false));
    assert!(later.list().await.unwrap().is_empty());
    let elsewhere = Holder { host: "there".into(), ..holder(1) };
    let elsewhere = as_holder(&world, elsewhere).reservations(Arc::new(|_| false));
    assert_eq!(elsewhere.list().await.unwrap().len(), 1, "another host doesn't know who lives here");
}

/// Ann has a and wants b, Bob has b and wants a: the one who asks against the order is refused instead of waiting.
#[tokio::test(flavor = "multi_thread")]
async fn nobody_waits_in_a_circle() {
    let world = World::new();
    let book = book(&world);
    let waiting = |owner: &str, wait| Take { wait: Duration::from_millis(wait), ..Take::by(owner) };
    book.take(&[write("a")], &Take::by("ann")).await.unwrap();
    let b = book.take(&[write("b")], &Take::by("bob")).await.unwrap();
    let circle = book.take(&[write("a")], &waiting("bob", 60_000)).await;
    assert!(matches!(&circle, Err(ReservationError::OutOfOrder { .. })), "{circle:?}");
    assert!(is_held_by(book.take(&[write("b")], &waiting("ann", 30)).await, "bob"), "the deadline");
    let (book_too, bob_is_done) = (book.clone(), async move {
        tokio::time::sleep(Duration::from_millis(30)).await;
        b
    });
    let (taken, ()) = tokio::join!(async { book.take(&[write("b")], &waiting("ann", 60_000)).await }, async {
        book_too.give_back(&bob_is_done.await).await.unwrap();
    },);
    assert_eq!(taken.unwrap()[0].path, path("b"));
}

/// Two take over at once: one gets it.
#[tokio::test(flavor = "multi_thread")]
async fn of_many_takeovers_at_once_one_wins() {
    let world = World::new();
    let book = book(&world);
    for round in 0..10 {
        let dead = Take { holder: Some(holder(13)), ..Take::by("dead") };
        book.take(&[write("a")], &dead).await.unwrap();
        let mut tasks = tokio::task::JoinSet::new();
        for n in 0..8 {
            let book = book.clone();
            tasks.spawn(async move { book.take(&[write("a")], &Take::by(format!("heir {n}"))).await });
        }
        let won = tasks.join_all().await.into_iter().filter_map(Result::ok).collect::<Vec<_>>();
        assert_eq!(won.len(), 1, "round {round}");
        book.give_back(&won[0]).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_book_that_cannot_be_read_is_said_and_left() {
    let world = World::new();
    let book = book(&world);
    let file = world.scratch.join("state/reservations");
    for damage in ["", "{", "[]", r#"{"version":9,"last":0,"grants":[]}"#] {
        std::fs::write(&file, damage).unwrap();
        let outcome = book.take(&[write("a")], &Take::by("ann")).await;
        assert!(
            matches!(outcome, Err(ReservationError::Workspace(WorkspaceError::File { what: "understand", .. }))),
            "{damage}: {outcome:?}"
        );
        assert_eq!(std::fs::read_to_string(&file).unwrap(), damage);
    }
    std::fs::remove_file(&file).unwrap();
    let odd = RelPath::new(b"a/\xff\"'; DROP").unwrap();
    book.take(&[(odd.clone(), ReserveMode::Write)], &Take::by("<script>\n\0")).await.unwrap();
    assert_eq!(book.list().await.unwrap()[0].path, odd);
}
