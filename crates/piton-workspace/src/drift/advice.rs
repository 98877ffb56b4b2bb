//! What to do about drift (D2, D4): a pure function of what was found, how far the run is, and what its user likes.

use serde::{Deserialize, Serialize};

use super::DriftSeverity;

/// Below this much progress it is cheaper to begin anew than to merge.
const EARLY: u8 = 20;

/// What a user would rather do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Preference {
    /// Begin anew on what upstream has.
    Restart,
    /// Keep the work, and merge.
    Merge,
}

/// What is best done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Advice {
    /// Nothing: upstream has nothing new.
    Nothing,
    /// Go on, and rebase at the end.
    Continue,
    /// Rebase soon: the same files are concerned.
    Rebase,
    /// Pause, merge by hand, and go on.
    Merge,
    /// Pause, and begin anew: little is lost.
    Restart,
    /// Stop: history was rewritten. Back the work up; then begin anew, or move it over by hand.
    Stop,
}

impl Advice {
    /// In words.
    pub const fn as_words(self) -> &'static str {
        match self {
            Self::Nothing => "nothing to do",
            Self::Continue => "go on, and rebase at the end",
            Self::Rebase => "rebase soon: the same files changed, in other places",
            Self::Merge => "pause, merge by hand, then go on: the same lines changed",
            Self::Restart => "pause, and begin anew on what upstream has: little is lost",
            Self::Stop => {
                "stop: upstream's history was rewritten; the work is backed up, begin anew or move it by hand"
            }
        }
    }

    /// Whether the agent or program at work should stand still until it is resolved.
    pub const fn is_pause(self) -> bool {
        matches!(self, Self::Merge | Self::Restart | Self::Stop)
    }
}

/// What is best done; `progress` is from 0 to 100.
pub fn advise(
    severity: Option<DriftSeverity>,
    rewritten: bool,
    progress: Option<u8>,
    preference: Option<Preference>,
) -> Advice {
    match (severity, preference) {
        _ if rewritten => Advice::Stop,
        (None, _) => Advice::Nothing,
        (Some(DriftSeverity::Low), _) => Advice::Continue,
        (Some(DriftSeverity::Medium), _) => Advice::Rebase,
        (Some(DriftSeverity::High), Some(Preference::Restart)) => Advice::Restart,
        (Some(DriftSeverity::High), Some(Preference::Merge)) => Advice::Merge,
        (Some(DriftSeverity::High), None) if progress.is_some_and(|progress| progress < EARLY) => Advice::Restart,
        (Some(DriftSeverity::High), None) => Advice::Merge,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// D2, D4.
    #[test]
    fn advice_follows_severity_progress_and_preference() {
        use DriftSeverity::{High, Low, Medium};
        assert_eq!(advise(None, false, Some(1), None), Advice::Nothing);
        assert_eq!(advise(Some(Low), false, Some(1), None), Advice::Continue);
        assert_eq!(advise(Some(Medium), false, Some(1), None), Advice::Rebase);
        assert_eq!(advise(Some(High), false, Some(19), None), Advice::Restart);
        assert_eq!(advise(Some(High), false, Some(20), None), Advice::Merge);
        assert_eq!(advise(Some(High), false, None, None), Advice::Merge);
        assert_eq!(advise(Some(High), false, Some(90), Some(Preference::Restart)), Advice::Restart);
        assert_eq!(advise(Some(High), false, Some(1), Some(Preference::Merge)), Advice::Merge);
        assert_eq!(advise(Some(Low), true, Some(90), Some(Preference::Merge)), Advice::Stop);
        assert!(Advice::Stop.is_pause() && !Advice::Rebase.is_pause());
    }
}
