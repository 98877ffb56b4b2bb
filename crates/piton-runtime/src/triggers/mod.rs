//! When a checkpoint is made by itself (C2).
//!
//! [`TriggerPolicy`] says which occasions count and how urgent each is; `decide` turns an occasion into
//! what to do, and is pure: no clock, no store. [`Autosave`](crate::Autosave) does what it says.
//!
//! Several triggers that are pending make one checkpoint, named by the most urgent of them:
//!
//! | priority | what it means |
//! |---|---|
//! | critical | a checkpoint at once; what comes next must not start before it is durable |
//! | high | a checkpoint at once, in the background; if one is being saved, as soon as that is |
//! | normal | the same, but first it waits a moment for others to join it |

mod decide;
mod policy;

pub(crate) use decide::{Action, Occasion, TriggerState, decide, next_due};
pub use policy::{GrowthRule, Rule, TimerRule, TriggerPolicy};
