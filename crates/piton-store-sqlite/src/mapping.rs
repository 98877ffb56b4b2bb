//! Room for what SQLite maps. It maps one file, the index of its WAL, and makes it longer by writing the last byte of each
//! 4 KiB. Where blocks are smaller than that, the rest of them is a hole, and to write into a hole of a mapped file on a full
//! disk ends the process with `SIGBUS`. So all blocks are made sure of before the file is mapped; if there is no room for
//! them, mapping fails, which is an error like any other.
#![expect(unsafe_code, reason = "SQLite's system calls are a table of C functions")]

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::os::fd::BorrowedFd;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering};

use rusqlite::ffi;
use rustix::fs::{FallocateFlags, fallocate, fstat, fstatvfs};
use rustix::io::Errno;

type Map = unsafe extern "C" fn(*mut c_void, usize, c_int, c_int, c_int, i64) -> *mut c_void;

/// `PROT_WRITE`, the same on every system.
const WRITE: c_int = 2;

/// The smallest block of a file system.
const SMALLEST: usize = 512;

/// SQLite's own.
static OWN: OnceLock<Map> = OnceLock::new();

thread_local! {
    /// Whether the last mapping of this thread failed for want of room.
    static REFUSED: Cell<bool> = const { Cell::new(false) };
}

/// Has SQLite's file layer map files by [`map`].
///
/// # Safety
///
/// `layer` is a valid file layer of SQLite.
pub(crate) unsafe fn install(layer: *mut ffi::sqlite3_vfs) {
    // SAFETY: the layer is valid, and its table holds `mmap` under this name, with these arguments (`off_t` has 64 bits).
    unsafe {
        let (Some(get), Some(set)) = ((*layer).xGetSystemCall, (*layer).xSetSystemCall) else { return };
        let Some(own) = get(layer, c"mmap".as_ptr()) else { return };
        let own = std::mem::transmute::<unsafe extern "C" fn(), Map>(own);
        if OWN.set(own).is_ok() {
            set(layer, c"mmap".as_ptr(), Some(std::mem::transmute::<Map, unsafe extern "C" fn()>(map)));
        }
    }
}

/// Whether the last mapping of this thread failed for want of room. Asks once.
pub(crate) fn was_refused() -> bool {
    REFUSED.take()
}

unsafe extern "C" fn map(
    at: *mut c_void,
    length: usize,
    rights: c_int,
    flags: c_int,
    file: c_int,
    from: i64,
) -> *mut c_void {
    let failed = std::ptr::without_provenance_mut(usize::MAX);
    let Some(own) = OWN.get() else { return failed };
    let mut room = Room::Sure;
    if rights & WRITE != 0 && file >= 0 {
        // SAFETY: SQLite has the file open while it maps it.
        room = make_room(unsafe { BorrowedFd::borrow_raw(file) }, from, length);
    }
    if room == Room::None {
        REFUSED.set(true);
        return failed;
    }
    // SAFETY: the arguments are those that SQLite gives to its own.
    let mapped = unsafe { own(at, length, rights, flags, file, from) };
    if room == Room::Likely && mapped != failed {
        for place in (0..length).step_by(SMALLEST) {
            // SAFETY: the place is mapped for writing. Nothing in it changes, whatever another process writes meanwhile.
            unsafe { AtomicU8::from_ptr(mapped.cast::<u8>().add(place)).fetch_or(0, Ordering::Relaxed) };
        }
    }
    mapped
}

/// Whether there is room for what is mapped.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Room {
    /// It has its blocks.
    Sure,
    /// The file system can't set blocks aside, but has them; they are taken by writing to them at once.
    Likely,
    None,
}

fn make_room(file: BorrowedFd<'_>, from: i64, length: usize) -> Room {
    let (Ok(from), Ok(length)) = (u64::try_from(from), u64::try_from(length)) else { return Room::Sure };
    match fallocate(file, FallocateFlags::empty(), from, length) {
        Ok(()) => return Room::Sure,
        Err(Errno::NOSPC | Errno::DQUOT) => return Room::None,
        Err(_) => {}
    }
    let (Ok(about), Ok(disk)) = (fstat(file), fstatvfs(file)) else { return Room::Sure };
    let has = u64::try_from(about.st_blocks).unwrap_or(0).saturating_mul(512);
    // A little more than the blocks themselves: the file system notes where they are.
    match disk.f_bavail.saturating_mul(disk.f_frsize) >= length + 8192 {
        _ if has >= from + length => Room::Sure,
        true => Room::Likely,
        false => Room::None,
    }
}
