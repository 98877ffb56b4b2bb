//! Counts allocations, which are stable where times are not, and what is held at most.

#![expect(unsafe_code, reason = "a global allocator is an unsafe trait; every call is passed on unchanged")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicU64, Ordering};

pub(crate) struct Counting;

static COUNT: AtomicU64 = AtomicU64::new(0);

/// Allocations so far, in all threads.
pub(crate) fn count() -> u64 {
    COUNT.load(Ordering::Relaxed)
}

static HELD: AtomicU64 = AtomicU64::new(0);
static PEAK: AtomicU64 = AtomicU64::new(0);

/// Bytes that are allocated now.
pub(crate) fn held() -> u64 {
    HELD.load(Ordering::Relaxed)
}

/// The most bytes that were allocated at once since [`reset_peak`].
pub(crate) fn peak() -> u64 {
    PEAK.load(Ordering::Relaxed)
}

/// Begins to look for the peak anew.
pub(crate) fn reset_peak() {
    PEAK.store(held(), Ordering::Relaxed);
}

fn grow(by: usize) {
    let now = HELD.fetch_add(by as u64, Ordering::Relaxed) + by as u64;
    PEAK.fetch_max(now, Ordering::Relaxed);
}

fn shrink(by: usize) {
    HELD.fetch_sub(by as u64, Ordering::Relaxed);
}

// SAFETY: every call goes to the system's allocator with the same arguments.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.fetch_add(1, Ordering::Relaxed);
        grow(layout.size());
        // SAFETY: the caller's obligations are the system allocator's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        shrink(layout.size());
        // SAFETY: the caller's obligations are the system allocator's.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        COUNT.fetch_add(1, Ordering::Relaxed);
        grow(size);
        shrink(layout.size());
        // SAFETY: the caller's obligations are the system allocator's.
        unsafe { System.realloc(pointer, layout, size) }
    }
}
