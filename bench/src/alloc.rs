//! Counts allocations, which are stable where times are not, and what is held at most.

#![expect(unsafe_code, reason = "a global allocator is an unsafe trait; every call is passed on unchanged")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

pub(crate) struct Counting;

/// Counting takes as long as a small allocation itself, and much longer where two threads do it, so it is on only while
/// a [`Watch`] is there.
static ON: AtomicBool = AtomicBool::new(false);
static COUNT: AtomicU64 = AtomicU64::new(0);
static HELD: AtomicI64 = AtomicI64::new(0);
static PEAK: AtomicI64 = AtomicI64::new(0);

/// Counts what all threads allocate while it is there. One at a time.
pub(crate) struct Watch(());

impl Watch {
    pub(crate) fn start() -> Self {
        COUNT.store(0, Ordering::Relaxed);
        HELD.store(0, Ordering::Relaxed);
        PEAK.store(0, Ordering::Relaxed);
        ON.store(true, Ordering::SeqCst);
        Self(())
    }

    /// Allocations since the start.
    #[expect(clippy::unused_self, reason = "there is nothing to count without it")]
    pub(crate) fn count(&self) -> u64 {
        COUNT.load(Ordering::Relaxed)
    }

    /// How many bytes more are allocated than at the start.
    #[expect(clippy::unused_self, reason = "there is nothing to count without it")]
    pub(crate) fn held(&self) -> u64 {
        HELD.load(Ordering::Relaxed).try_into().unwrap_or(0)
    }

    /// The most that it was.
    #[expect(clippy::unused_self, reason = "there is nothing to count without it")]
    pub(crate) fn peak(&self) -> u64 {
        PEAK.load(Ordering::Relaxed).try_into().unwrap_or(0)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        ON.store(false, Ordering::SeqCst);
    }
}

fn is_on() -> bool {
    ON.load(Ordering::Relaxed)
}

fn grow(by: usize) {
    COUNT.fetch_add(1, Ordering::Relaxed);
    let by = by.cast_signed() as i64;
    PEAK.fetch_max(HELD.fetch_add(by, Ordering::Relaxed) + by, Ordering::Relaxed);
}

fn shrink(by: usize) {
    HELD.fetch_sub(by.cast_signed() as i64, Ordering::Relaxed);
}

// SAFETY: every call goes to the system's allocator with the same arguments.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if is_on() {
            grow(layout.size());
        }
        // SAFETY: the caller's obligations are that allocator's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        if is_on() {
            shrink(layout.size());
        }
        // SAFETY: the caller's obligations are that allocator's.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if is_on() {
            grow(size);
            shrink(layout.size());
        }
        // SAFETY: the caller's obligations are that allocator's.
        unsafe { System.realloc(pointer, layout, size) }
    }
}
