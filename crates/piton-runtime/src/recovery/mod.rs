//! Taking a run up after something went wrong (V1, V2).
//!
//! 1. [`newest_whole`] finds the newest checkpoint of which every byte can be read, and says which ones it had
//!    to pass over. A changed environment is no reason to pass one over.
//! 2. [`validate`] holds its surroundings against what it asks for: the report of C6.
//! 3. [`Recovery::examine`] finds out what changed meanwhile, and settles each change by policy or by asking;
//!    where no person can be asked it stops with a report, and nothing was done.
//! 4. The [`ResumeNotice`] tells which run goes on, from where, and what was done last.
//!
//! What can change and what can be done about it comes through [`Changes`]: the workspace brings files and
//! upstream commits; [`RequiredFiles`], built in, sees to the files that a checkpoint names by their hashes.
//!
//! Nothing here runs what a checkpoint names: programs are looked for, and asked for their version only if the
//! caller listed them; hosts are reached for only if the caller listed them.

mod ask;
mod change;
mod environment;
mod examine;
mod notice;
mod report;
mod required;
mod stalled;
mod validate;
mod whole;

pub use ask::{Ask, CannotAsk, Question};
pub use change::{
    Change, ChangePolicies, Changes, Choice, DeletedPolicy, ModifiedPolicy, PathPolicy, PortError, UpstreamPolicy,
};
pub use environment::{Environment, SystemEnvironment};
pub use examine::{Examined, Recovery, RecoveryError, Stopped};
pub use notice::ResumeNotice;
pub use report::{Area, Finding, Severity, ValidationReport};
pub use required::RequiredFiles;
pub use stalled::{StalledRuns, stalled};
pub use validate::validate;
pub use whole::{Damaged, Search, Whole, newest_whole, whole_at};
