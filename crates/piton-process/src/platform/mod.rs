//! What differs between systems: that a program dies with us, its group, its sandbox, and what its exit
//! means.

#[cfg(target_os = "linux")]
mod linux;
#[cfg(target_os = "linux")]
pub use linux::exit_code;
#[cfg(target_os = "linux")]
pub(crate) use linux::{Group, choose, prepare, spawn};

#[cfg(any(not(target_os = "linux"), test))]
#[cfg_attr(target_os = "linux", expect(dead_code, reason = "compiled here so that it can't rot"))]
mod other;
#[cfg(not(target_os = "linux"))]
pub use other::exit_code;
#[cfg(not(target_os = "linux"))]
pub(crate) use other::{Group, choose, prepare, spawn};
