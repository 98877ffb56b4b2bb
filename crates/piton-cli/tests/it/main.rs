//! The binary as a user meets it: one real process per command, in a home of its own.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking, and so do its helpers")]

mod blocks;
mod book;
mod campaign;
mod cases;
mod damage;
mod errors;
mod files;
mod first_use;
mod help;
mod hooks;
mod idle;
mod keys;
mod kill;
mod look;
mod models;
mod people;
mod place;
mod readme;
mod restores;
mod secrets;
mod steer;
mod story;
mod terminal;
mod together;
mod travel;
mod trust;
mod unprivileged;
mod upkeep;
mod upkeep_faults;
mod world;
