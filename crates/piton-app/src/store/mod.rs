//! What is done with a store as a whole.

pub mod check;
pub mod copy;
pub mod doctor;
pub mod gc;
pub mod init;
pub mod keeping;
pub mod repair;
pub mod stores;
pub mod transfer;
