//! Faults for the tests of Piton, and what is needed to make them repeatable.
//!
//! - [`ManualClock`] and [`SeededRandom`]: time and chance in the test's hands.
//! - [`Line`]: a run that grows by made-up entries.
//! - [`CrashStore`]: a store that dies, or goes away for a while, at a chosen call.
//! - [`strace`]: a real process killed, or its system call failed, at a chosen system call.
//! - [`power`]: what a disk may hold after a power cut, for any moment of a recorded run.
//! - [`flip`]: every byte of a folder damaged in turn, and what became of it.
//! - [`level`]: how many of all the faults a run of the tests can afford.
//! - [`postgres`]: a PostgreSQL server and a pooler of a test's own.
//! - [`s3`] and [`redis`]: such servers of a test's own.
//! - [`proxy`]: connections to a server that break, take long or say something else.
//! - [`web`]: a server on loopback that answers as a test wants, as a model does for one.
//! - [`process`] and [`scratch`]: children that can't hang a test, folders that vanish, a tiny disk.
//!
//! Everything here panics with a message when the machine can't do what a test needs: a fault test
//! that could not inject its fault has failed. Each harness is itself tested against a journal with
//! deliberate flaws (`victim/`), which it must find.

pub mod flip;
pub mod level;
pub mod postgres;
pub mod power;
pub mod process;
pub mod proxy;
pub mod redis;
pub mod s3;
pub mod scratch;
pub mod strace;
pub mod web;

mod clock;
mod crash_store;
mod line;
mod random;

pub use clock::ManualClock;
pub use crash_store::{CrashStore, Fault};
pub use line::{Line, id};
pub use random::SeededRandom;
