//! Reservations: who means to write or only read which files, so that several agents keep out of each other's
//! way (W9).
//!
//! They are advice: a process that doesn't ask isn't stopped. A process that asks gets an answer that holds: a path has
//! many readers or one writer, and a folder stands for everything in it. All of them are in one small file in the
//! workspace's own folder outside, changed by one process at a time and by one rename, so a kill leaves the old or the
//! new.
//!
//! Each grant has a number that no other has or had: its fence. A grant ends when it is given back, when its time is
//! up, or when the process that it was bound to is dead; the owner that takes the path then gets a higher fence, and
//! the old holder is told so when it renews, checks or writes ([`OptimisticLock`](crate::OptimisticLock) compares the
//! fence under the same lock as the write). Time is that of the host since its boot, which can't be set back; a grant
//! from before a reboot is void. Only for a grant of another host, where the folder is shared, the wall clock has to
//! do.
//!
//! No owners wait in a circle: what one call asks for is given at once or not at all, and an owner that holds something
//! may wait only for what comes behind it in the order of paths.

use std::collections::HashMap;
use std::fs::File;
use std::sync::Arc;
use std::time::Duration;

use piton_types::{Holder, Timestamp, from_json, from_value, to_json, to_value};
use serde::{Deserialize, Serialize};

use crate::state::State;
use crate::workspace::blocking;
use crate::{RelPath, Workspace, WorkspaceError};

/// How long a reservation lasts unless said otherwise.
pub const RESERVED_FOR: Duration = Duration::from_secs(300);

/// The longest time between two looks while waiting.
const PATIENCE: Duration = Duration::from_millis(100);

/// The version of the file's form.
const VERSION: u32 = 1;

/// The file with all of them.
const BOOK: &str = "reservations";

/// What a path is reserved for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReserveMode {
    /// It must not change; others may read too.
    Read,
    /// No other owner may touch it.
    Write,
}

/// A path that an owner reserved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reservation {
    /// Which.
    pub path: RelPath,
    /// What for.
    pub mode: ReserveMode,
    /// Who, in words.
    pub owner: String,
    /// The number of this grant; higher than that of any before it.
    pub fence: u64,
    /// Since when.
    pub acquired_at: Timestamp,
    /// Until when, if it isn't renewed.
    pub expires_at: Timestamp,
    /// The process with which it ends.
    pub holder: Option<Holder>,
}

/// How to take reservations.
#[derive(Debug, Clone)]
pub struct Take {
    /// Who takes them, in words. An owner that takes again what it has gets a new grant for the old one.
    pub owner: String,
    /// For how long.
    pub lasting: Duration,
    /// How long to wait for others.
    pub wait: Duration,
    /// The process with which they end; without one only time ends them.
    pub holder: Option<Holder>,
}

impl Take {
    /// By `owner`, for the usual time, without waiting.
    pub fn by(owner: impl Into<String>) -> Self {
        Self { owner: owner.into(), lasting: RESERVED_FOR, wait: Duration::ZERO, holder: None }
    }
}

/// Why something isn't reserved.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReservationError {
    /// Others have it.
    #[error("{} {} reserved by {}", held[0].path, if held[0].mode == ReserveMode::Write { "is" } else { "is, for reading," }, held[0].owner)]
    Held {
        /// What they have that is in the way; never empty.
        held: Vec<Reservation>,
    },
    /// To wait for it might be to wait for ever.
    #[error("{wanted} comes before {holds}, which {owner} holds already: waiting for it could end in a circle")]
    OutOfOrder {
        /// What was asked for.
        wanted: RelPath,
        /// What its owner has.
        holds: RelPath,
        /// Who.
        owner: String,
    },
    /// The grant is void: its time was up or its process dead, or it was given back.
    #[error("the reservation of {path} with the number {fence} is over")]
    Over {
        /// Of which path.
        path: RelPath,
        /// Which grant.
        fence: u64,
    },
    /// The workspace failed.
    #[error(transparent)]
    Workspace(#[from] WorkspaceError),
}

/// Tells whether a process is known to be dead. A process that can't be seen from here isn't.
pub type IsDead = Arc<dyn Fn(&Holder) -> bool + Send + Sync>;

/// The reservations of a folder.
#[derive(Clone)]
pub struct Reservations {
    workspace: Workspace,
    is_dead: IsDead,
    /// This host and its boot.
    here: (String, String),
}

/// A grant as it is stored.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Grant {
    #[serde(with = "path_bytes")]
    path: RelPath,
    mode: ReserveMode,
    owner: String,
    fence: u64,
    acquired_at: Timestamp,
    expires_at: Timestamp,
    /// The host and boot by whose clock it ends.
    host: String,
    boot: String,
    /// Milliseconds since that boot; where the system doesn't tell, the wall clock has to do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    until: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    holder: Option<Holder>,
}

/// The whole file.
#[derive(Debug, Serialize, Deserialize)]
struct Book {
    version: u32,
    /// The highest fence that was ever given.
    last: u64,
    grants: Vec<Grant>,
}

impl Workspace {
    /// The reservations of this folder.
    pub fn reservations(&self, is_dead: IsDead) -> Reservations {
        let me = &self.context().holder;
        Reservations { workspace: self.clone(), is_dead, here: (me.host.clone(), me.boot.clone()) }
    }
}

impl Reservations {
    /// Takes all of these, or none.
    pub async fn take(
        &self,
        wanted: &[(RelPath, ReserveMode)],
        how: &Take,
    ) -> Result<Vec<Reservation>, ReservationError> {
        let wanted = &each_once(wanted);
        let clock = Arc::clone(&self.workspace.context().clock);
        let start = clock.monotonic();
        let mut pause = Duration::from_millis(2);
        loop {
            let (wanted_now, how_now) = (wanted.clone(), how.clone());
            let outcome = self.change(move |book, now| grant(book, now, &wanted_now, &how_now)).await?;
            let held = match outcome {
                Ok(granted) => return Ok(granted),
                Err(held) => held,
            };
            let waited = clock.monotonic().saturating_sub(start);
            let Some(left) = how.wait.checked_sub(waited).filter(|left| !left.is_zero()) else {
                return Err(ReservationError::Held { held });
            };
            self.in_order(wanted, &how.owner).await?;
            clock.sleep(pause.min(left)).await;
            pause = (pause * 2).min(PATIENCE);
        }
    }

    /// An owner that holds something may wait only for what comes behind it.
    async fn in_order(&self, wanted: &[(RelPath, ReserveMode)], owner: &str) -> Result<(), ReservationError> {
        let mine = self.list().await?.into_iter().filter(|held| held.owner == owner);
        let Some(last) = mine.map(|held| held.path).max() else { return Ok(()) };
        match wanted.iter().map(|(path, _)| path).min() {
            Some(first) if *first < last => {
                let (wanted, owner) = (first.clone(), owner.to_owned());
                Err(ReservationError::OutOfOrder { wanted, holds: last, owner })
            }
            _ => Ok(()),
        }
    }

    /// Makes grants last longer from now on. If one of them is over, none is renewed.
    pub async fn renew(&self, held: &[Reservation], lasting: Duration) -> Result<Vec<Reservation>, ReservationError> {
        let held = held.to_vec();
        self.change(move |book, now| {
            for wanted in &held {
                if !book.grants.iter().any(|grant| grant.fence == wanted.fence) {
                    let (path, fence) = (wanted.path.clone(), wanted.fence);
                    return Err(ReservationError::Over { path, fence });
                }
            }
            let mut renewed = Vec::new();
            for grant in book.grants.iter_mut().filter(|grant| held.iter().any(|held| held.fence == grant.fence)) {
                now.extend(grant, lasting);
                renewed.push(Reservation::from(&*grant));
            }
            Ok(renewed)
        })
        .await?
    }

    /// Gives grants back. What is over already is no error.
    pub async fn give_back(&self, held: &[Reservation]) -> Result<(), ReservationError> {
        let fences: Vec<u64> = held.iter().map(|held| held.fence).collect();
        Ok(self.change(move |book, _| book.grants.retain(|grant| !fences.contains(&grant.fence))).await?)
    }

    /// Ends what `owner` has of these paths, or all that the owner has if none is named. Says what that was.
    pub async fn release(&self, owner: &str, paths: &[RelPath]) -> Result<Vec<Reservation>, ReservationError> {
        let (owner, paths) = (owner.to_owned(), paths.to_vec());
        Ok(self
            .change(move |book, _| {
                let ends = |grant: &Grant| grant.owner == owner && (paths.is_empty() || paths.contains(&grant.path));
                let ended = book.grants.iter().filter(|grant| ends(grant)).map(Reservation::from).collect();
                book.grants.retain(|grant| !ends(grant));
                ended
            })
            .await?)
    }

    /// What is reserved now, in the order of paths.
    pub async fn list(&self) -> Result<Vec<Reservation>, WorkspaceError> {
        let this = self.clone();
        blocking(move || {
            // The book is replaced as a whole, so it is read without its lock.
            let (mut book, now) = (this.read()?, this.now());
            now.sweep(&mut book, &this.is_dead);
            let mut held: Vec<Reservation> = book.grants.iter().map(Reservation::from).collect();
            held.sort_by(|a, b| (&a.path, a.fence).cmp(&(&b.path, b.fence)));
            Ok(held)
        })
        .await
    }

    /// Whether `owner` may write to a path: what a tool asks before it does. It may if no other owner has reserved the
    /// path, a folder that it is in, or something in it.
    pub async fn check_write(&self, path: &RelPath, owner: &str) -> Result<(), ReservationError> {
        let in_the_way = |held: &Reservation| held.owner != owner && overlap(&held.path, path);
        let held: Vec<Reservation> = self.list().await?.into_iter().filter(in_the_way).collect();
        if held.is_empty() { Ok(()) } else { Err(ReservationError::Held { held }) }
    }

    /// Holds the book still, so that no grant can begin or end, and checks that a write is in order: it is if the grant
    /// that it names holds or, where it names none, if no other owner has one.
    pub(crate) fn hold(&self, path: &RelPath, right: &WriteRight) -> Result<Held, ReservationError> {
        let lock = self.lock()?;
        let (mut book, now) = (self.read()?, self.now());
        now.sweep(&mut book, &self.is_dead);
        match right {
            WriteRight::Grant { fence } => {
                let covers = |grant: &&Grant| {
                    grant.fence == *fence && grant.mode == ReserveMode::Write && path.is_within(&grant.path)
                };
                if !book.grants.iter().any(|grant| covers(&grant)) {
                    return Err(ReservationError::Over { path: path.clone(), fence: *fence });
                }
            }
            WriteRight::Owner(owner) => {
                let in_the_way = |grant: &&Grant| grant.owner != *owner && overlap(&grant.path, path);
                let held: Vec<Reservation> = book.grants.iter().filter(in_the_way).map(Reservation::from).collect();
                if !held.is_empty() {
                    return Err(ReservationError::Held { held });
                }
            }
        }
        Ok(Held { _lock: lock })
    }

    /// Changes the book while no other process does.
    async fn change<T: Send + 'static>(
        &self,
        change: impl FnOnce(&mut Book, &Now) -> T + Send + 'static,
    ) -> Result<T, WorkspaceError> {
        let this = self.clone();
        blocking(move || {
            let _lock = this.lock()?;
            let (mut book, now) = (this.read()?, this.now());
            now.sweep(&mut book, &this.is_dead);
            let answer = change(&mut book, &now);
            this.write(&book)?;
            Ok(answer)
        })
        .await
    }

    fn state(&self) -> &State {
        &self.workspace.0.state
    }

    fn lock(&self) -> Result<File, WorkspaceError> {
        let fail = |error| WorkspaceError::file("lock", self.state().path("reservations.lock"), error);
        let file = self.state().lock_file("reservations.lock").map_err(fail)?;
        file.lock().map_err(fail)?;
        Ok(file)
    }

    fn now(&self) -> Now {
        let clock = &self.workspace.context().clock;
        let since_boot = clock.since_boot().map(millis);
        Now { at: clock.now(), since_boot, here: self.here.clone() }
    }

    fn read(&self) -> Result<Book, WorkspaceError> {
        let path = self.state().path(BOOK);
        let read = self.state().read(BOOK).map_err(|error| WorkspaceError::file("read", &path, error))?;
        let Some(text) = read else { return Ok(Book { version: VERSION, last: 0, grants: Vec::new() }) };
        let damaged = |detail: String| WorkspaceError::file("understand", &path, std::io::Error::other(detail));
        // Beside an encrypted store it is sealed: it has names of files.
        let hashing = self.workspace.0.store.hashing();
        let text = match hashing.is_keyed() {
            false => text.into(),
            true => hashing
                .open_beside(BOOK, text.into())
                .ok_or_else(|| damaged("it was changed, or written with another key".to_owned()))?,
        };
        let value = from_json(&text).map_err(|error| damaged(error.to_string()))?;
        let book: Book = from_value(value).map_err(|error| damaged(error.to_string()))?;
        if book.version != VERSION {
            return Err(damaged(format!("its version is {}, and {VERSION} is what is known here", book.version)));
        }
        Ok(book)
    }

    /// Not synced: reservations end with the boot anyway.
    fn write(&self, book: &Book) -> Result<(), WorkspaceError> {
        let value = to_value(book).expect("texts and numbers are a value");
        let text = to_json(&value).expect("there is no float in it").to_string();
        let sealed = self.workspace.0.store.hashing().seal_beside(BOOK, &[text.as_bytes()]);
        let written = self.state().write(BOOK, &[sealed.as_deref().unwrap_or(text.as_bytes())], false);
        written.map_err(|error| WorkspaceError::file("write", self.state().path(BOOK), error))
    }
}

/// By what right a file is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WriteRight {
    /// By a grant that must still hold.
    Grant {
        /// Its number.
        fence: u64,
    },
    /// By this owner: no other owner may have reserved it.
    Owner(String),
}

impl From<&Reservation> for WriteRight {
    fn from(held: &Reservation) -> Self {
        Self::Grant { fence: held.fence }
    }
}

/// While it lives no grant begins or ends.
#[derive(Debug)]
pub(crate) struct Held {
    _lock: File,
}

/// What time it is, and where.
struct Now {
    at: Timestamp,
    since_boot: Option<u64>,
    here: (String, String),
}

impl Now {
    fn extend(&self, grant: &mut Grant, lasting: Duration) {
        grant.expires_at = self.at.after(lasting);
        (grant.host, grant.boot) = self.here.clone();
        grant.until = self.since_boot.map(|now| now.saturating_add(millis(lasting)));
    }

    /// Takes out what is over.
    fn sweep(&self, book: &mut Book, is_dead: &IsDead) {
        book.grants.retain(|grant| {
            let over = match (grant.host == self.here.0, grant.boot == self.here.1, self.since_boot, grant.until) {
                (true, true, Some(now), Some(until)) => now >= until,
                (true, false, ..) => true,
                _ => self.at >= grant.expires_at,
            };
            !over && !grant.holder.as_ref().is_some_and(|holder| is_dead(holder))
        });
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Whether two paths are the same, or one is in the other.
fn overlap(a: &RelPath, b: &RelPath) -> bool {
    a.is_within(b) || b.is_within(a)
}

/// Each path once; a caller that wants to read and write it wants to write it.
fn each_once(wanted: &[(RelPath, ReserveMode)]) -> Vec<(RelPath, ReserveMode)> {
    let mut places = HashMap::new();
    let mut once: Vec<(RelPath, ReserveMode)> = Vec::new();
    for (path, mode) in wanted {
        let place = *places.entry(path).or_insert(once.len());
        match once.get_mut(place) {
            Some((_, known)) if *mode == ReserveMode::Write => *known = ReserveMode::Write,
            Some(_) => {}
            None => once.push((path.clone(), *mode)),
        }
    }
    once
}

fn grant(
    book: &mut Book,
    now: &Now,
    wanted: &[(RelPath, ReserveMode)],
    how: &Take,
) -> Result<Vec<Reservation>, Vec<Reservation>> {
    let in_the_way = |held: &&Grant| {
        held.owner != how.owner
            && wanted.iter().any(|(path, mode)| {
                overlap(&held.path, path) && (*mode == ReserveMode::Write || held.mode == ReserveMode::Write)
            })
    };
    let held: Vec<Reservation> = book.grants.iter().filter(in_the_way).map(Reservation::from).collect();
    if !held.is_empty() {
        return Err(held);
    }
    // An owner that takes again what it has gets it under a new number, and a forgotten process of that owner can't use
    // the old.
    book.grants.retain(|held| held.owner != how.owner || !wanted.iter().any(|(path, _)| *path == held.path));
    let mut granted = Vec::with_capacity(wanted.len());
    for (path, mode) in wanted {
        book.last += 1;
        let mut grant = Grant {
            path: path.clone(),
            mode: *mode,
            owner: how.owner.clone(),
            fence: book.last,
            acquired_at: now.at,
            expires_at: now.at,
            host: String::new(),
            boot: String::new(),
            until: None,
            holder: how.holder.clone(),
        };
        now.extend(&mut grant, how.lasting);
        granted.push(Reservation::from(&grant));
        book.grants.push(grant);
    }
    Ok(granted)
}

impl From<&Grant> for Reservation {
    fn from(grant: &Grant) -> Self {
        Self {
            path: grant.path.clone(),
            mode: grant.mode,
            owner: grant.owner.clone(),
            fence: grant.fence,
            acquired_at: grant.acquired_at,
            expires_at: grant.expires_at,
            holder: grant.holder.clone(),
        }
    }
}

impl std::fmt::Debug for Reservations {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reservations").field("workspace", &self.workspace).finish_non_exhaustive()
    }
}

/// A path as text if it is one, else as bytes.
mod path_bytes {
    use piton_types::Value;
    use serde::{Deserialize as _, Deserializer, Serialize as _, Serializer, de::Error as _};

    use crate::RelPath;

    pub(super) fn serialize<S: Serializer>(path: &RelPath, serializer: S) -> Result<S::Ok, S::Error> {
        match std::str::from_utf8(path.as_bytes()) {
            Ok(text) => Value::from(text),
            Err(_) => Value::Bytes(path.as_bytes().to_vec()),
        }
        .serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<RelPath, D::Error> {
        let value = Value::deserialize(deserializer)?;
        let bytes = match &value {
            Value::String(text) => text.as_bytes(),
            Value::Bytes(bytes) => bytes,
            _ => return Err(D::Error::custom("a path is a text or bytes")),
        };
        RelPath::new(bytes).map_err(D::Error::custom)
    }
}
