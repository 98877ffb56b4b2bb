//! What only the operating system knows: which host and boot this is, how long ago that was, and whether a
//! process lives.
//!
//! On Linux all of it comes from `/proc`. Elsewhere nothing of it is known, which is safe: a run whose
//! holder may be alive isn't taken over.

#[cfg(target_os = "linux")]
mod linux;
#[cfg(target_os = "linux")]
pub(crate) use linux::{calling_program, is_running, nudge, process, since_boot, this_process};

#[cfg(any(not(target_os = "linux"), test))]
mod other;
#[cfg(not(target_os = "linux"))]
pub(crate) use other::{calling_program, is_running, nudge, process, since_boot, this_process};
