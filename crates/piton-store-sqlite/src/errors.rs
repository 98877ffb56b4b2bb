//! What SQLite's errors mean for the data.

use std::path::Path;

use piton_store::StoreError;
use rusqlite::{ErrorCode, ffi};

/// Whether another connection has the lock that was wanted.
pub(crate) fn is_busy(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked))
}

/// Whether a failed write leaves unknown what reached the disk.
///
/// A full disk doesn't: the commit frame is written last and wasn't. Nor does damage that was found
/// while reading: the transaction was rolled back before anything was written.
pub(crate) fn poisons(error: &rusqlite::Error, committing: bool) -> bool {
    let Some(failure) = error.sqlite_error() else { return committing };
    match failure.code {
        ErrorCode::DiskFull | ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked | ErrorCode::ReadOnly => false,
        ErrorCode::SystemIoFailure => !is_damage(failure.extended_code),
        _ => committing,
    }
}

fn is_damage(extended: i32) -> bool {
    matches!(extended, ffi::SQLITE_IOERR_DATA | ffi::SQLITE_IOERR_CORRUPTFS)
}

/// The store's error for one of SQLite's.
pub(crate) fn translate(error: &rusqlite::Error, path: &Path) -> StoreError {
    let what = || path.display().to_string();
    let Some(failure) = error.sqlite_error() else {
        // A value of the wrong type or out of range: nothing that Piton writes.
        return StoreError::corrupt(what(), error.to_string());
    };
    let detail = error.to_string();
    match failure.code {
        ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase => StoreError::corrupt(what(), detail),
        // The statements are fixed: one that SQLite can't compile has met tables that Piton didn't make.
        ErrorCode::Unknown if failure.extended_code == ffi::SQLITE_ERROR => StoreError::corrupt(what(), detail),
        ErrorCode::SystemIoFailure if is_damage(failure.extended_code) => {
            StoreError::corrupt(what(), "a page doesn't match its checksum")
        }
        // SQLite writes to the index of its WAL only to make it longer, and doesn't say why that failed. What
        // it runs out of there is space.
        ErrorCode::SystemIoFailure if failure.extended_code == ffi::SQLITE_IOERR_SHMSIZE => {
            StoreError::Full { what: what(), detail: "the index of the WAL can't be made longer".to_owned() }
        }
        ErrorCode::DiskFull => StoreError::Full { what: what(), detail },
        ErrorCode::ReadOnly => StoreError::ReadOnly { what: what() },
        ErrorCode::CannotOpen if out_of_handles() => {
            StoreError::Unavailable { detail: format!("{}: no file handles are left", path.display()) }
        }
        ErrorCode::CannotOpen if out_of_inodes(path) => {
            StoreError::Full { what: what(), detail: "no inodes are left".to_owned() }
        }
        ErrorCode::CannotOpen | ErrorCode::PermissionDenied | ErrorCode::AuthorizationForStatementDenied => {
            StoreError::Denied { what: what(), detail }
        }
        ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked => {
            StoreError::Unavailable { detail: format!("{} is in use by another process", path.display()) }
        }
        ErrorCode::TooBig => StoreError::TooLarge { what: "a row".to_owned(), size: 0, limit: crate::schema::MAX_ROW },
        _ => StoreError::Unavailable { detail: format!("{}: {detail}", path.display()) },
    }
}

/// SQLite says 'can't open' for this too, and doesn't say why. It has let go of the handles that it had by
/// then, so what counts is whether there are as many as it needs: database, WAL, index and folder.
fn out_of_handles() -> bool {
    let handles: Result<Vec<_>, _> = (0..6).map(|_| std::fs::File::open("/dev/null")).collect();
    handles.is_err_and(|error| {
        error.raw_os_error().is_some_and(|code| {
            let code = rustix::io::Errno::from_raw_os_error(code);
            matches!(code, rustix::io::Errno::MFILE | rustix::io::Errno::NFILE)
        })
    })
}

/// The same for inodes: beside the database SQLite makes two files. File systems without a fixed number of
/// inodes say that they have none at all.
fn out_of_inodes(path: &Path) -> bool {
    let folder = path.parent().unwrap_or(path);
    rustix::fs::statvfs(folder).is_ok_and(|system| system.f_files > 0 && system.f_favail < 2)
}

/// The store's error for one of the file system's.
pub(crate) fn from_io(error: &std::io::Error, path: &Path) -> StoreError {
    StoreError::from_io(error, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(code: i32) -> rusqlite::Error {
        rusqlite::Error::SqliteFailure(ffi::Error::new(code), None)
    }

    #[test]
    fn every_code_has_its_meaning() {
        let of = |code| translate(&failure(code), Path::new("s"));
        assert!(matches!(of(ffi::SQLITE_CORRUPT), StoreError::Corrupt { .. }));
        assert!(matches!(of(ffi::SQLITE_NOTADB), StoreError::Corrupt { .. }));
        assert!(matches!(of(ffi::SQLITE_IOERR_DATA), StoreError::Corrupt { .. }));
        assert!(matches!(of(ffi::SQLITE_IOERR_READ), StoreError::Unavailable { .. }));
        assert!(matches!(of(ffi::SQLITE_FULL), StoreError::Full { .. }));
        assert!(matches!(of(ffi::SQLITE_IOERR_SHMSIZE), StoreError::Full { .. }));
        assert!(matches!(of(ffi::SQLITE_READONLY), StoreError::ReadOnly { .. }));
        assert!(matches!(of(ffi::SQLITE_READONLY_DBMOVED), StoreError::ReadOnly { .. }));
        assert!(matches!(of(ffi::SQLITE_CANTOPEN), StoreError::Denied { .. }));
        assert!(matches!(of(ffi::SQLITE_PERM), StoreError::Denied { .. }));
        assert!(matches!(of(ffi::SQLITE_BUSY), StoreError::Unavailable { .. }));
        assert!(matches!(of(ffi::SQLITE_TOOBIG), StoreError::TooLarge { .. }));
    }

    #[test]
    fn only_unknown_outcomes_poison() {
        for code in [ffi::SQLITE_FULL, ffi::SQLITE_BUSY, ffi::SQLITE_READONLY, ffi::SQLITE_IOERR_DATA] {
            assert!(!poisons(&failure(code), true), "{code}");
        }
        for code in [ffi::SQLITE_IOERR_FSYNC, ffi::SQLITE_IOERR_WRITE, ffi::SQLITE_IOERR_SHMSIZE] {
            assert!(poisons(&failure(code), false), "{code}");
        }
        assert!(poisons(&failure(ffi::SQLITE_CORRUPT), true));
        assert!(!poisons(&failure(ffi::SQLITE_CORRUPT), false));
    }
}
