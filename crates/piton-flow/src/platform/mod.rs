//! What differs between systems when a program is started: that it dies with us, and what its exit
//! means.

#[cfg(target_os = "linux")]
mod linux;
#[cfg(target_os = "linux")]
pub(crate) use linux::{exit_code, spawn};

#[cfg(any(not(target_os = "linux"), test))]
#[cfg_attr(target_os = "linux", expect(dead_code, reason = "compiled here so that it can't rot"))]
mod other;
#[cfg(not(target_os = "linux"))]
pub(crate) use other::{exit_code, spawn};
