//! Looking after a store: giving back the space of what no run needs, finding damage, copying runs. What is to be kept
//! is decided above, by policy; here it is found out what that needs.

mod ahead;
mod check;
mod collect;
mod copy;
mod graph;
mod outline;
mod repair;
mod sharing;
mod thin;
mod tolerant;
mod transcribe;

pub use check::{CheckReport, DamagedCheckpoint, RunReport, Sizes, check, check_run};
pub use collect::{Collected, Reach, collect, expect_removal};
pub use copy::{Copied, Copier, copy_run};
pub use outline::{outline, outline_run};
pub use repair::{Salvaged, salvage_run};
pub use sharing::Sharing;
pub use thin::{Thinned, drop_removed};
pub use transcribe::{Transcribed, Transcript};
