//! What a connection that writes spares of SQLite's locks on the log's index.
//!
//! A transaction holds a *mark*: how far the log was when it began, and beyond that the log isn't moved into the
//! database meanwhile. Of the eight system calls that a commit takes without waiting for the disk, six are for locks,
//! four of these for marks:
//!
//! - SQLite raises a mark to the log's end whenever a transaction begins and the log has grown. An older mark serves a
//!   short transaction as well, so a writer is told that all marks are in use, which SQLite knows how to deal with.
//! - SQLite takes and drops the mark with each transaction. A writer keeps it from one commit to the next, as a reader
//!   who stays would. While nobody commits it would hold up others who want to move the log, so whoever uses this
//!   [lets go](Marks::let_go) when no commit came for a moment.
//!
//! Invariant: what SQLite believes to hold is held. What is kept beyond that is dropped before anybody on this
//! connection asks for a lock that it excludes.

use std::ffi::c_int;

use rusqlite::ffi;

/// How often a mark is raised.
const RAISED_EVERY: u32 = 16;
/// The first of the locks on marks, in SQLite's numbers.
const FIRST: c_int = 4;
const LOCK_EXCLUSIVE: c_int = ffi::SQLITE_SHM_LOCK | ffi::SQLITE_SHM_EXCLUSIVE;
const LOCK_SHARED: c_int = ffi::SQLITE_SHM_LOCK | ffi::SQLITE_SHM_SHARED;
pub(crate) const UNLOCK_SHARED: c_int = ffi::SQLITE_SHM_UNLOCK | ffi::SQLITE_SHM_SHARED;

/// The marks of one connection.
#[derive(Debug, Default)]
pub(crate) struct Marks {
    /// Whether older ones are good enough.
    pub(crate) spared: bool,
    /// How many transactions went without raising one since the last that did.
    since: u32,
    /// The last attempts to raise one were refused, and none of the older marks was taken since.
    refused: bool,
    /// The next mark that is dropped is kept.
    pub(crate) keeps: bool,
    /// The mark that is kept: SQLite believes that it was dropped.
    kept: Option<c_int>,
}

/// What becomes of a request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// It is handed on.
    Ask,
    /// It is handed on after the lock on this mark was dropped.
    DropFirst(c_int),
    /// It is granted: nothing is to do.
    Granted,
    /// The mark is in use.
    Refused,
}

impl Marks {
    /// What becomes of a request for `count` locks from `offset` on.
    pub(crate) fn answer(&mut self, offset: c_int, count: c_int, flags: c_int) -> Answer {
        match flags {
            LOCK_EXCLUSIVE if count == 1 && offset >= FIRST && self.refuses(offset) => Answer::Refused,
            LOCK_EXCLUSIVE => match self.kept.take_if(|kept| (offset..offset + count).contains(kept)) {
                Some(kept) => Answer::DropFirst(kept),
                None => Answer::Ask,
            },
            LOCK_SHARED if offset >= FIRST => {
                self.refused = false;
                match self.kept.take() {
                    Some(kept) if kept == offset => Answer::Granted,
                    Some(kept) => Answer::DropFirst(kept),
                    None => Answer::Ask,
                }
            }
            UNLOCK_SHARED if offset >= FIRST && std::mem::take(&mut self.keeps) => {
                self.kept = Some(offset);
                Answer::Granted
            }
            _ => Answer::Ask,
        }
    }

    /// Whether an attempt to raise the mark with this lock is refused. They come in order, until one succeeds.
    fn refuses(&mut self, lock: c_int) -> bool {
        if lock == FIRST {
            // Without an older one there is nothing else to do.
            let needed = std::mem::take(&mut self.refused) || self.since >= RAISED_EVERY;
            self.since = if needed { 0 } else { self.since + 1 };
        }
        self.refused = self.spared && self.since > 0;
        self.refused
    }

    /// The mark that is kept and is to be dropped now.
    pub(crate) fn let_go(&mut self) -> Option<c_int> {
        self.kept.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_kept_from_one_commit_to_the_next() {
        let mut marks = Marks::default();
        assert_eq!(marks.answer(5, 1, LOCK_SHARED), Answer::Ask);
        assert_eq!(marks.answer(5, 1, UNLOCK_SHARED), Answer::Ask, "nobody said that it is to be kept");
        assert_eq!(marks.answer(5, 1, LOCK_SHARED), Answer::Ask);
        marks.keeps = true;
        assert_eq!(marks.answer(5, 1, UNLOCK_SHARED), Answer::Granted);
        assert_eq!(marks.answer(5, 1, LOCK_SHARED), Answer::Granted);
        assert_eq!(marks.answer(5, 1, UNLOCK_SHARED), Answer::Ask, "it was said once");
        assert_eq!(marks.let_go(), None);
    }

    #[test]
    fn what_is_kept_is_dropped_before_anything_that_it_excludes() {
        let keeping = || {
            let mut marks = Marks { keeps: true, ..Marks::default() };
            assert_eq!(marks.answer(5, 1, UNLOCK_SHARED), Answer::Granted);
            marks
        };
        assert_eq!(keeping().answer(6, 1, LOCK_SHARED), Answer::DropFirst(5), "one at a time");
        assert_eq!(keeping().answer(5, 1, LOCK_EXCLUSIVE), Answer::DropFirst(5), "to raise it");
        assert_eq!(keeping().answer(4, 4, LOCK_EXCLUSIVE), Answer::DropFirst(5), "to begin the log again");
        assert_eq!(keeping().answer(0, 1, LOCK_EXCLUSIVE), Answer::Ask, "the write lock is another");
        assert_eq!(keeping().answer(3, 1, LOCK_SHARED), Answer::Ask, "so is that of a log that was moved");
        let mut marks = keeping();
        assert_eq!(marks.let_go(), Some(5));
        assert_eq!(marks.answer(5, 1, LOCK_SHARED), Answer::Ask);
    }

    #[test]
    fn marks_are_raised_now_and_then_and_when_there_is_none() {
        let mut marks = Marks { spared: true, ..Marks::default() };
        let mut raised = 0;
        for _ in 0..34 {
            match marks.answer(FIRST, 1, LOCK_EXCLUSIVE) {
                Answer::Refused => {
                    (FIRST + 1..FIRST + 4)
                        .for_each(|lock| assert_eq!(marks.answer(lock, 1, LOCK_EXCLUSIVE), Answer::Refused));
                }
                _ => raised += 1,
            }
            marks.answer(FIRST, 1, LOCK_SHARED);
        }
        assert_eq!(raised, 2);
        // Refused, and no older mark was there to be taken: the next attempt counts.
        assert_eq!(marks.answer(FIRST, 1, LOCK_EXCLUSIVE), Answer::Refused);
        assert_eq!(marks.answer(FIRST, 1, LOCK_EXCLUSIVE), Answer::Ask);
    }
}
