//! What causes a checkpoint (C2).

use serde::{Deserialize, Serialize};

/// Why a checkpoint was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Trigger {
    /// An agent or a step completed.
    StepCompleted,
    /// A dangerous operation is about to start.
    BeforeDangerous,
    /// A call to the outside is about to start.
    BeforeExternal,
    /// A file changed.
    FileChanged,
    /// The user said something.
    UserInput,
    /// The timer went off and the state had changed.
    Timer,
    /// The context grew past its limit.
    ContextGrowth,
    /// The user or the program asked for it.
    Manual,
}

/// How urgent a checkpoint is: of several that are due at once, the highest names the one that is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Priority {
    /// May be put off.
    Normal,
    /// Soon.
    High,
    /// What comes next must not start before it is durable.
    Critical,
}

impl Trigger {
    /// Every trigger.
    pub const ALL: [Self; 8] = [
        Self::StepCompleted,
        Self::BeforeDangerous,
        Self::BeforeExternal,
        Self::FileChanged,
        Self::UserInput,
        Self::Timer,
        Self::ContextGrowth,
        Self::Manual,
    ];

    /// How urgent it is.
    pub const fn priority(self) -> Priority {
        match self {
            Self::BeforeDangerous | Self::BeforeExternal => Priority::Critical,
            Self::StepCompleted | Self::UserInput | Self::Manual => Priority::High,
            Self::FileChanged | Self::Timer | Self::ContextGrowth => Priority::Normal,
        }
    }
}
