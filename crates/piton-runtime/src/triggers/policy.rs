//! Which triggers are on, and how they are tuned.

use std::time::Duration;

use piton_types::{Priority, Trigger};
use serde::{Deserialize, Serialize};

/// When checkpoints are made by themselves. Everything has a default, so that a settings file names only
/// what differs:
///
/// ```
/// use piton_runtime::TriggerPolicy;
/// use piton_types::{Priority, Trigger};
///
/// let policy: TriggerPolicy = toml::from_str("
///     file_changed = { enabled = false }
///     user_input = { priority = 'critical' }
///     timer = { every_seconds = 60 }
/// ").unwrap();
/// assert_eq!(policy.priority(Trigger::FileChanged), None);
/// assert_eq!(policy.priority(Trigger::UserInput), Some(Priority::Critical));
/// assert_eq!(policy.priority(Trigger::BeforeDangerous), Some(Priority::Critical));
/// assert_eq!(policy.context_growth.bytes, 10_000);
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TriggerPolicy {
    /// After an agent or a step completes.
    pub step_completed: Rule,
    /// Before a dangerous operation.
    pub before_dangerous: Rule,
    /// Before a call to the outside.
    pub before_external: Rule,
    /// After a file changed.
    pub file_changed: Rule,
    /// After the user said something.
    pub user_input: Rule,
    /// From time to time, if the state changed.
    pub timer: TimerRule,
    /// When the context has grown.
    pub context_growth: GrowthRule,
    /// By hand.
    pub manual: Rule,
    /// How long a checkpoint of normal priority waits for others to join it, in milliseconds.
    pub settle_ms: u64,
}

/// One trigger.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Rule {
    /// Whether it counts.
    pub enabled: bool,
    /// How urgent it is; without one, as urgent as the trigger is by itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<Priority>,
}

/// The timer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TimerRule {
    /// Whether it counts.
    pub enabled: bool,
    /// How urgent it is; without one, normal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<Priority>,
    /// How long after the last checkpoint, in seconds.
    pub every_seconds: u64,
}

/// The growth of the context.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GrowthRule {
    /// Whether it counts.
    pub enabled: bool,
    /// How urgent it is; without one, normal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<Priority>,
    /// By how many bytes more than this it must have grown since the last checkpoint.
    pub bytes: u64,
}

impl Rule {
    /// On, as urgent as the trigger is by itself.
    pub const ON: Self = Self { enabled: true, priority: None };
    /// Off.
    pub const OFF: Self = Self { enabled: false, priority: None };
}

impl Default for Rule {
    fn default() -> Self {
        Self::ON
    }
}

impl Default for TimerRule {
    fn default() -> Self {
        Self { enabled: true, priority: None, every_seconds: 300 }
    }
}

impl Default for GrowthRule {
    fn default() -> Self {
        Self { enabled: true, priority: None, bytes: 10_000 }
    }
}

impl Default for TriggerPolicy {
    fn default() -> Self {
        Self {
            step_completed: Rule::ON,
            before_dangerous: Rule::ON,
            before_external: Rule::ON,
            file_changed: Rule::ON,
            user_input: Rule::ON,
            timer: TimerRule::default(),
            context_growth: GrowthRule::default(),
            manual: Rule::ON,
            settle_ms: 1000,
        }
    }
}

impl TriggerPolicy {
    /// Only checkpoints that the user or the program asks for.
    pub fn by_hand_only() -> Self {
        Self {
            step_completed: Rule::OFF,
            before_dangerous: Rule::OFF,
            before_external: Rule::OFF,
            file_changed: Rule::OFF,
            user_input: Rule::OFF,
            timer: TimerRule { enabled: false, ..TimerRule::default() },
            context_growth: GrowthRule { enabled: false, ..GrowthRule::default() },
            ..Self::default()
        }
    }

    /// How urgent a trigger is; `None` if it is off.
    pub fn priority(&self, trigger: Trigger) -> Option<Priority> {
        let TimerRule { enabled, priority, .. } = self.timer;
        let timer = Rule { enabled, priority };
        let GrowthRule { enabled, priority, .. } = self.context_growth;
        let growth = Rule { enabled, priority };
        let rule = match trigger {
            Trigger::StepCompleted => self.step_completed,
            Trigger::BeforeDangerous => self.before_dangerous,
            Trigger::BeforeExternal => self.before_external,
            Trigger::FileChanged => self.file_changed,
            Trigger::UserInput => self.user_input,
            Trigger::Timer => timer,
            Trigger::ContextGrowth => growth,
            Trigger::Manual => self.manual,
        };
        rule.enabled.then(|| rule.priority.unwrap_or(trigger.priority()))
    }

    pub(super) const fn settle(&self) -> Duration {
        Duration::from_millis(self.settle_ms)
    }

    pub(super) const fn every(&self) -> Duration {
        Duration::from_secs(self.timer.every_seconds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// C2: what is on by default, how urgent it is, and the numbers.
    #[test]
    fn the_defaults_are_those_of_the_specification() {
        let policy = TriggerPolicy::default();
        let listed = Trigger::ALL.map(|trigger| format!("{trigger:?} {:?}", policy.priority(trigger).unwrap()));
        insta::assert_snapshot!(listed.join("\n"), @r"
        StepCompleted High
        BeforeDangerous Critical
        BeforeExternal Critical
        FileChanged Normal
        UserInput High
        Timer Normal
        ContextGrowth Normal
        Manual High
        ");
        assert_eq!((policy.every(), policy.context_growth.bytes), (Duration::from_secs(5 * 60), 10_000));
    }

    #[test]
    fn each_can_be_switched_off_and_a_misspelt_one_is_refused() {
        for trigger in Trigger::ALL {
            let name = piton_types::to_value(&trigger).unwrap().as_str().unwrap().to_owned();
            let policy: TriggerPolicy = toml::from_str(&format!("{name} = {{ enabled = false }}")).unwrap();
            for other in Trigger::ALL {
                assert_eq!(policy.priority(other).is_none(), other == trigger, "{trigger:?} {other:?}");
            }
        }
        for wrong in
            ["timr = {}", "timer = { every = 5 }", "manual = { enabled = 1 }", "timer = { every_seconds = -1 }"]
        {
            assert!(toml::from_str::<TriggerPolicy>(wrong).is_err(), "{wrong}");
        }
        let text = toml::to_string(&TriggerPolicy::by_hand_only()).unwrap();
        assert_eq!(toml::from_str::<TriggerPolicy>(&text).unwrap(), TriggerPolicy::by_hand_only());
    }
}
