//! What to do about an occasion: `(policy, state, occasion, time) → (state, action)`, without a clock or a
//! store.
//!
//! Time is monotonic, as the caller's [`Clock`](piton_types::Clock) tells it: a wall clock that jumps makes
//! no checkpoint early or late.

use std::time::Duration;

use piton_types::{Priority, Trigger};

use super::TriggerPolicy;

/// Something that may call for a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Occasion {
    /// What a trigger watches for took place.
    Happened(Trigger),
    /// The state changed, and the context grew by so many bytes.
    Changed {
        /// How many.
        bytes: u64,
    },
    /// Time passed.
    Tick,
    /// The checkpoint that was being saved is durable.
    Saved,
    /// The checkpoint that was being saved is not.
    Failed,
}

/// What was decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    /// Nothing for now.
    Nothing,
    /// Begin to save a checkpoint, and go on meanwhile.
    Save(Trigger),
    /// Save a checkpoint and go on only when it is durable.
    SaveFirst(Trigger),
}

/// A checkpoint that will be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pending {
    /// The most urgent trigger; of equally urgent ones the first.
    pub(crate) trigger: Trigger,
    /// How urgent that is.
    pub(crate) priority: Priority,
    /// When it is no longer put off.
    pub(crate) due: Duration,
}

/// What is remembered between occasions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct TriggerState {
    /// Whether the state changed since the last checkpoint was taken.
    pub(crate) changed: bool,
    /// By how many bytes the context grew since then.
    pub(crate) grown: u64,
    /// Whether a checkpoint is being saved.
    pub(crate) saving: bool,
    /// The checkpoint that will be made next.
    pub(crate) pending: Option<Pending>,
    /// When the last one was taken, or the watch began.
    pub(crate) last: Duration,
}

impl TriggerState {
    /// Nothing happened yet.
    pub(crate) fn beginning(now: Duration) -> Self {
        Self { last: now, ..Self::default() }
    }

    fn raise(&mut self, policy: &TriggerPolicy, trigger: Trigger, now: Duration) {
        let Some(priority) = policy.priority(trigger) else { return };
        // The timer has waited long enough.
        let waits = priority == Priority::Normal && trigger != Trigger::Timer;
        let due = if waits { now.saturating_add(policy.settle()) } else { now };
        let new = Pending { trigger, priority, due };
        self.pending = Some(match self.pending {
            None => new,
            Some(old) => {
                let named = if new.priority > old.priority { new } else { old };
                Pending { due: old.due.min(new.due), ..named }
            }
        });
    }

    /// Takes the pending checkpoint if its time has come.
    fn act(&mut self, now: Duration) -> Action {
        let Some(pending) = self.pending else { return Action::Nothing };
        let first = pending.priority == Priority::Critical;
        if !first && (self.saving || now < pending.due) {
            return Action::Nothing;
        }
        *self = Self { saving: true, ..Self::beginning(now) };
        if first { Action::SaveFirst(pending.trigger) } else { Action::Save(pending.trigger) }
    }
}

/// What to do about `occasion`, which took place at `now`.
///
/// The caller does what the action says, and says [`Occasion::Saved`] or [`Occasion::Failed`] when it is
/// done. Everything that changed before a checkpoint is begun is in it, so what was pending then is done
/// with it.
pub(crate) fn decide(
    policy: &TriggerPolicy,
    mut state: TriggerState,
    occasion: Occasion,
    now: Duration,
) -> (TriggerState, Action) {
    match occasion {
        Occasion::Happened(trigger) => state.raise(policy, trigger, now),
        Occasion::Changed { bytes } => {
            state.changed = true;
            let before = state.grown;
            state.grown = before.saturating_add(bytes);
            // Once only: what is pending needs no second call.
            if before <= policy.context_growth.bytes && state.grown > policy.context_growth.bytes {
                state.raise(policy, Trigger::ContextGrowth, now);
            }
        }
        Occasion::Tick => {
            if state.changed && now.saturating_sub(state.last) >= policy.every() {
                state.raise(policy, Trigger::Timer, now);
            }
        }
        Occasion::Saved => state.saving = false,
        Occasion::Failed => {
            state.saving = false;
            // What it had is in no checkpoint, so the next one has to be made.
            state.changed = true;
        }
    }
    let action = state.act(now);
    (state, action)
}

/// When [`Occasion::Tick`] is worth telling next, if nothing else happens before.
pub(crate) fn next_due(policy: &TriggerPolicy, state: &TriggerState) -> Option<Duration> {
    let pending = state.pending.filter(|_| !state.saving).map(|pending| pending.due);
    let timer = (state.changed && policy.timer.enabled).then(|| state.last.saturating_add(policy.every()));
    [pending, timer].into_iter().flatten().min()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Rule;

    const NOW: Duration = Duration::from_secs(10);

    fn run(policy: &TriggerPolicy, occasions: &[(u64, Occasion)]) -> (TriggerState, Vec<Action>) {
        let mut state = TriggerState::beginning(Duration::ZERO);
        let actions = occasions.iter().map(|&(at, occasion)| {
            let (next, action) = decide(policy, state, occasion, Duration::from_millis(at));
            state = next;
            action
        });
        let actions = actions.collect();
        (state, actions)
    }

    /// C2, every pair of trigger and situation.
    #[test]
    fn what_waits_is_taken_along_and_what_is_dangerous_does_not_wait() {
        let policy = TriggerPolicy::default();
        let begun = TriggerState::beginning(Duration::ZERO);
        let happened = |state, trigger| decide(&policy, state, Occasion::Happened(trigger), Duration::ZERO);
        let (state, action) = happened(begun, Trigger::FileChanged);
        assert_eq!(action, Action::Nothing);
        let (state, action) = happened(state, Trigger::StepCompleted);
        assert_eq!(action, Action::Save(Trigger::StepCompleted));
        let (_, action) = happened(state, Trigger::BeforeDangerous);
        assert_eq!(action, Action::SaveFirst(Trigger::BeforeDangerous));
    }

    #[test]
    fn every_trigger_in_every_situation() {
        let policy = TriggerPolicy::default();
        let pending = |trigger: Trigger| {
            Some(Pending { trigger, priority: policy.priority(trigger).unwrap(), due: NOW + policy.settle() })
        };
        let idle = TriggerState::beginning(Duration::ZERO);
        let situations = [
            ("idle", idle),
            ("saving", TriggerState { saving: true, ..idle }),
            ("put off", TriggerState { pending: pending(Trigger::FileChanged), ..idle }),
            ("saving, next due", TriggerState { saving: true, pending: pending(Trigger::UserInput), ..idle }),
        ];
        let mut table = format!("{:16}", "");
        situations.iter().for_each(|(name, _)| table += &format!("{name:26}"));
        for trigger in Trigger::ALL {
            table = format!("{}\n{:16}", table.trim_end(), format!("{trigger:?}"));
            for (_, state) in situations {
                let (next, action) = decide(&policy, state, Occasion::Happened(trigger), NOW);
                let cell = match (action, next.pending) {
                    (Action::Nothing, Some(pending)) => format!("later {:?}", pending.trigger),
                    (Action::Save(named), None) => format!("save {named:?}"),
                    (Action::SaveFirst(named), None) => format!("FIRST {named:?}"),
                    other => panic!("{other:?}"),
                };
                table += &format!("{cell:26}");
                assert_eq!(next.saving, state.saving || action != Action::Nothing);
            }
        }
        insta::assert_snapshot!(table.trim_end(), @r"
                        idle                      saving                    put off                   saving, next due
        StepCompleted   save StepCompleted        later StepCompleted       save StepCompleted        later UserInput
        BeforeDangerous FIRST BeforeDangerous     FIRST BeforeDangerous     FIRST BeforeDangerous     FIRST BeforeDangerous
        BeforeExternal  FIRST BeforeExternal      FIRST BeforeExternal      FIRST BeforeExternal      FIRST BeforeExternal
        FileChanged     later FileChanged         later FileChanged         later FileChanged         later UserInput
        UserInput       save UserInput            later UserInput           save UserInput            later UserInput
        Timer           save Timer                later Timer               save FileChanged          later UserInput
        ContextGrowth   later ContextGrowth       later ContextGrowth       later FileChanged         later UserInput
        Manual          save Manual               later Manual              save Manual               later UserInput
        ");
        for trigger in Trigger::ALL {
            let mut off = TriggerPolicy::by_hand_only();
            off.manual = Rule::OFF;
            for (name, state) in situations.into_iter().filter(|(name, _)| *name != "put off") {
                let (next, action) = decide(&off, state, Occasion::Happened(trigger), NOW);
                assert_eq!((next, action), (state, Action::Nothing), "{trigger:?} is off, {name}");
            }
        }
    }

    /// The timer: only if the state changed, counted from the last checkpoint whatever caused it.
    #[test]
    fn the_timer_wants_a_change() {
        let policy = TriggerPolicy::default();
        let every = 300_000;
        let (_, actions) = run(&policy, &[(every, Occasion::Tick), (every * 9, Occasion::Tick)]);
        assert_eq!(actions, [Action::Nothing; 2], "nothing changed");
        let (state, actions) = run(
            &policy,
            &[
                (1, Occasion::Changed { bytes: 1 }),
                (every - 1, Occasion::Tick),
                (every, Occasion::Tick),
                (every + 5, Occasion::Saved),
                (every * 3, Occasion::Tick),
            ],
        );
        let nothing = Action::Nothing;
        assert_eq!(actions, [nothing, nothing, Action::Save(Trigger::Timer), nothing, nothing]);
        assert_eq!(next_due(&policy, &state), None);
        // Time that seems to run backwards, which no monotonic clock does, makes nothing due.
        let late = TriggerState { changed: true, ..TriggerState::beginning(NOW) };
        assert_eq!(decide(&policy, late, Occasion::Tick, Duration::ZERO).1, Action::Nothing);
    }

    #[test]
    fn growth_counts_since_the_last_checkpoint() {
        let policy = TriggerPolicy::default();
        let grow = |bytes| Occasion::Changed { bytes };
        let (state, actions) = run(&policy, &[(0, grow(10_000)), (0, grow(1)), (5, grow(50_000))]);
        assert_eq!(actions, [Action::Nothing; 3], "it settles first");
        assert_eq!(next_due(&policy, &state), Some(Duration::from_millis(1000)));
        let (state, action) = decide(&policy, state, Occasion::Tick, Duration::from_millis(1000));
        assert_eq!(action, Action::Save(Trigger::ContextGrowth));
        assert_eq!(state.grown, 0);
        let (state, _) = decide(&policy, state, Occasion::Saved, Duration::from_millis(1001));
        let (state, _) = decide(&policy, state, grow(10_000), Duration::from_millis(1001));
        assert_eq!(state.pending, None);
    }

    #[test]
    fn after_a_failed_save_the_timer_tries_again() {
        let policy = TriggerPolicy::default();
        let (state, actions) = run(&policy, &[(0, Occasion::Happened(Trigger::UserInput)), (9, Occasion::Failed)]);
        assert_eq!(actions, [Action::Save(Trigger::UserInput), Action::Nothing]);
        assert_eq!(next_due(&policy, &state), Some(policy.every()));
    }

    fn occasion() -> impl Strategy<Value = Occasion> {
        prop_oneof![
            4 => (0..Trigger::ALL.len()).prop_map(|n| Occasion::Happened(Trigger::ALL[n])),
            2 => (0_u64..8_000).prop_map(|bytes| Occasion::Changed { bytes }),
            2 => Just(Occasion::Tick),
            2 => Just(Occasion::Saved),
        ]
    }

    proptest! {
        /// Whatever happens: of what is pending the most urgent names the checkpoint, nothing but the
        /// critical is saved beside another, and nothing that was raised is forgotten.
        #[test]
        fn nothing_that_was_raised_is_forgotten(occasions in proptest::collection::vec((0_u64..2_000, occasion()), 1..60)) {
            let policy = TriggerPolicy::default();
            let (mut state, mut now) = (TriggerState::beginning(Duration::ZERO), Duration::ZERO);
            let mut owed: Option<Priority> = None;
            for (wait, occasion) in occasions {
                now += Duration::from_millis(wait);
                let was_saving = state.saving && occasion != Occasion::Saved;
                let (next, action) = decide(&policy, state, occasion, now);
                if let Occasion::Happened(trigger) = occasion {
                    owed = owed.max(policy.priority(trigger));
                }
                match action {
                    Action::Nothing => prop_assert!(owed.is_none() || next.pending.is_some()),
                    Action::Save(named) => {
                        prop_assert!(!was_saving);
                        prop_assert!(Some(named.priority()) >= owed);
                        owed = None;
                    }
                    Action::SaveFirst(named) => {
                        prop_assert_eq!(named.priority(), Priority::Critical);
                        owed = None;
                    }
                }
                state = next;
            }
            // Left alone, what is pending is saved at last.
            let (idle, first) = decide(&policy, state, Occasion::Saved, now);
            let due = next_due(&policy, &idle).unwrap_or(now).max(now);
            let (_, second) = decide(&policy, idle, Occasion::Tick, due);
            prop_assert!(owed.is_none() || first != Action::Nothing || second != Action::Nothing);
        }
    }
}
