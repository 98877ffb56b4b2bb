//! A thin layer between SQLite and its own file layer, for what SQLite doesn't do:
//!
//! - Each page of the database file carries a checksum over its number and content, in eight bytes
//!   that SQLite leaves free at its end. It is written with the page and compared when the page is
//!   read; a page that doesn't fit is `SQLITE_IOERR_DATA`. Without it SQLite returns wrong or missing
//!   rows after a flipped bit.
//! - The WAL is synced with `fdatasync`, which doesn't write the file's times. SQLite as it is built
//!   for Rust uses `fsync`, and then every durable commit waits for the file system's journal too.
//! - After a sync of the WAL it is noted how far that is on disk ([`wal_file`](crate::wal_file)).
//!
//! Frames of the WAL are not changed: their own checksums protect them, and the checkpoint that moves
//! a page from the WAL to the database goes through here. All other files are handed to SQLite's own
//! layer directly. A short read (past the end of the file) is passed on as it is. A whole page of
//! zeros doesn't pass: SQLite never reads a page that it hasn't written.
#![expect(unsafe_code, reason = "SQLite's file layer is a table of C functions")]

use std::ffi::{CStr, c_int, c_void};
use std::sync::OnceLock;

use rusqlite::{Connection, ffi};
use twox_hash::XxHash3_64;

use crate::mapping;
use crate::schema::{PAGE, RESERVED};
use crate::wal_file::WalFile;

/// The layer's name for SQLite.
pub(crate) const CHECKED: &CStr = c"piton";
/// The same without the comparison on reading: the negative control of the damage tests.
pub(crate) const UNCHECKED: &CStr = c"piton-unchecked";

const CONTENT: usize = PAGE - RESERVED as usize;
const PAGE_LENGTH: c_int = PAGE as c_int;
/// The part of the first page that SQLite reads before it knows the size of a page.
pub(crate) const HEADER: usize = 100;

/// The checksum of a page. Its place is part of it, so that a page that was written to the wrong place
/// is found as well. It is there for accidents; what an attacker forges is found by the hashes of the records.
pub(crate) fn checksum(number: u64, content: &[u8]) -> [u8; RESERVED as usize] {
    XxHash3_64::oneshot_with_seed(number, content).to_le_bytes()
}

/// An open file: this layer's part first, then SQLite's own in the same allocation.
#[repr(C)]
struct Layered {
    base: ffi::sqlite3_file,
    /// Compare checksums on reading.
    check: bool,
    /// The WAL once more, if this is it, to sync it.
    wal: Option<WalFile>,
}

/// Makes the layer known to SQLite, once per process.
pub(crate) fn register() -> Result<(), c_int> {
    static DONE: OnceLock<Result<(), c_int>> = OnceLock::new();
    *DONE.get_or_init(|| {
        for name in [CHECKED, UNCHECKED] {
            // SAFETY: `own` is a valid file layer that lives as long as the process, and so do the copy
            // of it, which is leaked, and the name.
            unsafe {
                let own = ffi::sqlite3_vfs_find(c"unix".as_ptr());
                if own.is_null() {
                    return Err(ffi::SQLITE_NOTFOUND);
                }
                mapping::install(own);
                let mut layer = Box::new(std::ptr::read(own));
                layer.zName = name.as_ptr();
                layer.szOsFile += c_int::try_from(size_of::<Layered>()).expect("a few dozen bytes");
                layer.pNext = std::ptr::null_mut();
                layer.xOpen = Some(open);
                match ffi::sqlite3_vfs_register(Box::into_raw(layer), 0) {
                    ffi::SQLITE_OK => {}
                    code => return Err(code),
                }
            }
        }
        Ok(())
    })
}

/// The first bytes of the database file as they are, without reading a page; `None` if it is shorter.
pub(crate) fn header(conn: &Connection) -> Option<[u8; HEADER]> {
    let mut header = [0; HEADER];
    (read_raw(conn, 0, &mut header) == ffi::SQLITE_OK).then_some(header)
}

/// Bytes of the database file as they are, from `at` on; gives SQLite's code. If the file ends before that, the rest is
/// zeros.
///
/// Through SQLite's own descriptor, because closing another one would drop the locks that this process
/// has on the file.
pub(crate) fn read_raw(conn: &Connection, at: i64, buffer: &mut [u8]) -> c_int {
    let (Ok(file), Ok(length)) = (file_of(conn), c_int::try_from(buffer.len())) else { return ffi::SQLITE_CANTOPEN };
    // SAFETY: the connection is open, and so is its file; the buffer has its length.
    unsafe {
        match (*file).pMethods.as_ref().and_then(|methods| methods.xRead) {
            Some(read) => read(file, buffer.as_mut_ptr().cast(), length, at),
            None => ffi::SQLITE_CANTOPEN,
        }
    }
}

/// The database file of a connection, which is valid as long as that is.
fn file_of(conn: &Connection) -> rusqlite::Result<*mut ffi::sqlite3_file> {
    let mut file: *mut ffi::sqlite3_file = std::ptr::null_mut();
    let op = ffi::SQLITE_FCNTL_FILE_POINTER;
    // SAFETY: the connection is open, and this operation writes a pointer.
    let code = unsafe { ffi::sqlite3_file_control(conn.handle(), c"main".as_ptr(), op, (&raw mut file).cast()) };
    match code {
        ffi::SQLITE_OK if !file.is_null() => Ok(file),
        _ => Err(rusqlite::Error::SqliteFailure(ffi::Error::new(ffi::SQLITE_CANTOPEN), None)),
    }
}

/// Whether a page of the database file has its checksum.
pub(crate) fn fits(number: u64, page: &[u8]) -> bool {
    page[CONTENT..] == checksum(number, &page[..CONTENT])
}

unsafe extern "C" fn open(
    layer: *mut ffi::sqlite3_vfs,
    name: ffi::sqlite3_filename,
    file: *mut ffi::sqlite3_file,
    flags: c_int,
    out: *mut c_int,
) -> c_int {
    // SAFETY: SQLite calls this with a layer that `register` made and with `szOsFile` bytes at `file`,
    // which are enough for `Layered` and the file of its own layer behind it. The WAL always has a name.
    unsafe {
        let own = ffi::sqlite3_vfs_find(c"unix".as_ptr());
        let Some(own_open) = own.as_ref().and_then(|own| own.xOpen) else { return ffi::SQLITE_CANTOPEN };
        let methods = match flags & (ffi::SQLITE_OPEN_MAIN_DB | ffi::SQLITE_OPEN_WAL) {
            ffi::SQLITE_OPEN_MAIN_DB => &DATABASE,
            ffi::SQLITE_OPEN_WAL => &WAL,
            _ => return own_open(own, name, file, flags, out),
        };
        let base = ffi::sqlite3_file { pMethods: std::ptr::null() };
        let check = (*layer).zName == CHECKED.as_ptr();
        file.cast::<Layered>().write(Layered { base, check, wal: None });
        let code = own_open(own, name, inner(file), flags, out);
        if code != ffi::SQLITE_OK {
            if let Some(close) = (*inner(file)).pMethods.as_ref().and_then(|methods| methods.xClose) {
                close(inner(file));
            }
            return code;
        }
        if flags & ffi::SQLITE_OPEN_WAL != 0 {
            (*file.cast::<Layered>()).wal = WalFile::open(CStr::from_ptr(name).to_bytes());
        }
        (*file).pMethods = methods;
        ffi::SQLITE_OK
    }
}

/// The file of SQLite's own layer behind this one's part.
unsafe fn inner(file: *mut ffi::sqlite3_file) -> *mut ffi::sqlite3_file {
    // SAFETY: the allocation goes on behind `Layered`, whose size is a multiple of eight.
    unsafe { file.cast::<Layered>().add(1).cast() }
}

/// Functions that only hand the call on.
macro_rules! handed_on {
    ($($name:ident: $method:ident($($argument:ident: $type:ty),*)),* $(,)?) => {
        $(unsafe extern "C" fn $name(file: *mut ffi::sqlite3_file $(, $argument: $type)*) -> c_int {
            // SAFETY: SQLite gives a file that `open` made, with the arguments that it would give to
            // its own layer.
            unsafe {
                let own = inner(file);
                match (*(*own).pMethods).$method {
                    Some(method) => method(own $(, $argument)*),
                    None => ffi::SQLITE_IOERR,
                }
            }
        })*
    };
}

handed_on! {
    own_read: xRead(buffer: *mut c_void, length: c_int, offset: i64),
    own_write: xWrite(buffer: *const c_void, length: c_int, offset: i64),
    own_close: xClose(),
    truncate: xTruncate(size: i64),
    sync: xSync(flags: c_int),
    size: xFileSize(size: *mut i64),
    lock: xLock(level: c_int),
    unlock: xUnlock(level: c_int),
    reserved: xCheckReservedLock(out: *mut c_int),
    control: xFileControl(op: c_int, argument: *mut c_void),
    sector: xSectorSize(),
    characteristics: xDeviceCharacteristics(),
    own_shm_map: xShmMap(page: c_int, size: c_int, extend: c_int, out: *mut *mut c_void),
    shm_lock: xShmLock(offset: c_int, count: c_int, flags: c_int),
    shm_unmap: xShmUnmap(delete: c_int),
}

/// That there is no room for the index of the WAL is said as SQLite says it itself.
unsafe extern "C" fn shm_map(
    file: *mut ffi::sqlite3_file,
    page: c_int,
    size: c_int,
    extend: c_int,
    out: *mut *mut c_void,
) -> c_int {
    // SAFETY: as for the functions above.
    match unsafe { own_shm_map(file, page, size, extend, out) } {
        ffi::SQLITE_IOERR_SHMMAP if mapping::was_refused() => ffi::SQLITE_IOERR_SHMSIZE,
        code => code,
    }
}

unsafe extern "C" fn shm_barrier(file: *mut ffi::sqlite3_file) {
    // SAFETY: as for the functions above.
    unsafe {
        let own = inner(file);
        if let Some(method) = (*(*own).pMethods).xShmBarrier {
            method(own);
        }
    }
}

unsafe extern "C" fn close(file: *mut ffi::sqlite3_file) -> c_int {
    // SAFETY: SQLite closes a file once and doesn't use it afterwards, so what `open` wrote is dropped
    // once.
    unsafe {
        let code = own_close(file);
        std::ptr::drop_in_place(file.cast::<Layered>());
        code
    }
}

/// The number of the page at `offset`, if this is exactly one page.
fn page_at(length: c_int, offset: i64) -> Option<u64> {
    let offset = u64::try_from(offset).ok()?;
    (usize::try_from(length) == Ok(PAGE) && offset.is_multiple_of(PAGE as u64)).then(|| offset / PAGE as u64 + 1)
}

unsafe extern "C" fn read_page(file: *mut ffi::sqlite3_file, buffer: *mut c_void, length: c_int, offset: i64) -> c_int {
    // SAFETY: `file` is from `open`, and SQLite gives `length` bytes at `buffer`, all of which are
    // written if its own layer says that it read them.
    unsafe {
        let check = (*file.cast::<Layered>()).check;
        let short = usize::try_from(length).unwrap_or(PAGE);
        if check
            && short < PAGE
            && offset > 0
            && let Some(number) = page_at(PAGE_LENGTH, offset)
        {
            return read_start(file, buffer, short, offset, number);
        }
        let code = own_read(file, buffer, length, offset);
        if code == ffi::SQLITE_IOERR_SHORT_READ && check && page_at(length, offset).is_some() {
            // Behind the end of the file there are zeros. A page that is there in part was cut off: SQLite would take
            // it for a whole one.
            let is_cut = std::slice::from_raw_parts(buffer.cast::<u8>(), PAGE).iter().any(|byte| *byte != 0);
            return if is_cut { ffi::SQLITE_IOERR_DATA } else { code };
        }
        if code != ffi::SQLITE_OK || !check {
            return code;
        }
        let Some(number) = page_at(length, offset) else {
            let header = offset.saturating_add(i64::from(length)) <= HEADER as i64;
            return if header { code } else { ffi::SQLITE_IOERR_DATA };
        };
        let page = std::slice::from_raw_parts(buffer.cast::<u8>(), PAGE);
        if fits(number, page) { code } else { ffi::SQLITE_IOERR_DATA }
    }
}

/// Reads the first bytes of a page, all of which is read for its checksum. SQLite does so with the pages of large
/// values, past its cache.
unsafe fn read_start(
    file: *mut ffi::sqlite3_file,
    buffer: *mut c_void,
    length: usize,
    offset: i64,
    number: u64,
) -> c_int {
    let mut page = [0; PAGE];
    // SAFETY: `file` is from `open`, the page has its size, and `buffer` has at least `length` bytes, which are fewer
    // than those of a page.
    unsafe {
        match own_read(file, page.as_mut_ptr().cast(), PAGE_LENGTH, offset) {
            ffi::SQLITE_OK if fits(number, &page) => {
                std::ptr::copy_nonoverlapping(page.as_ptr(), buffer.cast(), length);
                ffi::SQLITE_OK
            }
            // What a value goes on in is there as a whole, or lost.
            ffi::SQLITE_OK | ffi::SQLITE_IOERR_SHORT_READ => ffi::SQLITE_IOERR_DATA,
            code => code,
        }
    }
}

unsafe extern "C" fn write_page(
    file: *mut ffi::sqlite3_file,
    buffer: *const c_void,
    length: c_int,
    offset: i64,
) -> c_int {
    let Some(number) = page_at(length, offset) else { return ffi::SQLITE_IOERR_WRITE };
    let mut page = [0; PAGE];
    // SAFETY: `file` is from `open`, and SQLite gives `length` bytes at `buffer`, here a page.
    unsafe {
        page.copy_from_slice(std::slice::from_raw_parts(buffer.cast::<u8>(), PAGE));
        let sum = checksum(number, &page[..CONTENT]);
        page[CONTENT..].copy_from_slice(&sum);
        own_write(file, page.as_ptr().cast(), length, offset)
    }
}

unsafe extern "C" fn write_wal(
    file: *mut ffi::sqlite3_file,
    buffer: *const c_void,
    length: c_int,
    offset: i64,
) -> c_int {
    #[cfg(test)]
    if let Some(code) = fault::WRITES.get() {
        return code;
    }
    // SAFETY: `file` is from `open`, SQLite doesn't use it from two threads at once, and it gives `length` bytes.
    unsafe {
        if let (Some(wal), Ok(size)) = (&mut (*file.cast::<Layered>()).wal, usize::try_from(length)) {
            wal.wrote(std::slice::from_raw_parts(buffer.cast(), size), offset);
        }
        own_write(file, buffer, length, offset)
    }
}

unsafe extern "C" fn sync_wal(file: *mut ffi::sqlite3_file, flags: c_int) -> c_int {
    #[cfg(test)]
    if fault::strikes_sync() {
        return ffi::SQLITE_IOERR_FSYNC;
    }
    // SAFETY: `file` is from `open`, and SQLite doesn't use it from two threads at once.
    unsafe {
        match &mut (*file.cast::<Layered>()).wal {
            Some(wal) => wal.sync(),
            None => sync(file, flags),
        }
    }
}

/// Version 2: with shared memory, without memory mapping, which would read around the checksums.
const fn methods(
    read: unsafe extern "C" fn(*mut ffi::sqlite3_file, *mut c_void, c_int, i64) -> c_int,
    write: unsafe extern "C" fn(*mut ffi::sqlite3_file, *const c_void, c_int, i64) -> c_int,
    sync: unsafe extern "C" fn(*mut ffi::sqlite3_file, c_int) -> c_int,
) -> ffi::sqlite3_io_methods {
    ffi::sqlite3_io_methods {
        iVersion: 2,
        xClose: Some(close),
        xRead: Some(read),
        xWrite: Some(write),
        xTruncate: Some(truncate),
        xSync: Some(sync),
        xFileSize: Some(size),
        xLock: Some(lock),
        xUnlock: Some(unlock),
        xCheckReservedLock: Some(reserved),
        xFileControl: Some(control),
        xSectorSize: Some(sector),
        xDeviceCharacteristics: Some(characteristics),
        xShmMap: Some(shm_map),
        xShmLock: Some(shm_lock),
        xShmBarrier: Some(shm_barrier),
        xShmUnmap: Some(shm_unmap),
        xFetch: None,
        xUnfetch: None,
    }
}

static DATABASE: ffi::sqlite3_io_methods = methods(read_page, write_page, sync);
static WAL: ffi::sqlite3_io_methods = methods(own_read, write_wal, sync_wal);

/// Failing writes and syncs of the WAL on the calling thread, for tests.
#[cfg(test)]
pub(crate) mod fault {
    use std::cell::Cell;

    thread_local! {
        /// How many syncs still succeed.
        pub(crate) static SYNCS_LEFT: Cell<Option<u32>> = const { Cell::new(None) };
        /// What writes answer.
        pub(crate) static WRITES: Cell<Option<i32>> = const { Cell::new(None) };
    }

    pub(super) fn strikes_sync() -> bool {
        let left = SYNCS_LEFT.get();
        SYNCS_LEFT.set(left.map(|left| left.saturating_sub(1)));
        left == Some(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pins the format: a change here makes every existing store unreadable.
    #[test]
    fn the_checksum_is_pinned() {
        assert_eq!(checksum(1, &[0; CONTENT]), [21, 167, 130, 70, 76, 109, 203, 26]);
        assert_ne!(checksum(1, &[0; CONTENT]), checksum(2, &[0; CONTENT]));
    }

    #[test]
    fn only_whole_pages_have_numbers() {
        assert_eq!(page_at(4096, 0), Some(1));
        assert_eq!(page_at(4096, 8192), Some(3));
        assert_eq!(page_at(4096, 100), None);
        assert_eq!(page_at(1024, 0), None);
        assert_eq!(page_at(4096, -4096), None);
    }
}
