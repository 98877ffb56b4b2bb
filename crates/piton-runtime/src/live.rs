//! Which claims the handles of this very process hold.
//!
//! A process that asks after a holder which is itself can't learn anything from the system: its claim
//! stands as long as the [`Run`](crate::Run) that made it, and that may have been dropped. So every
//! claim has a random number, written in the log, and the numbers of the handles that exist are here.
//! This is the one thing that is global to the process, because the process is what it is about.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard};

use piton_types::{Holder, Random};
use tokio::sync::Notify;

type Key = (u32, u64, u64);

static LIVE: LazyLock<Mutex<HashMap<Key, Arc<Notify>>>> = LazyLock::new(Mutex::default);

fn live() -> MutexGuard<'static, HashMap<Key, Arc<Notify>>> {
    LIVE.lock().expect("no code that holds this lock panics")
}

const fn key(holder: &Holder, number: u64) -> Key {
    (holder.pid, holder.started, number)
}

/// A claim of this process, held until dropped.
#[derive(Debug)]
pub(crate) struct LiveClaim {
    key: Key,
    nudged: Arc<Notify>,
}

impl LiveClaim {
    /// A new claim. It is made before it is written, so that a reader of the claim finds it here.
    pub(crate) fn new(holder: &Holder, random: &dyn Random) -> Self {
        let mut bytes = [0; 8];
        random.fill(&mut bytes);
        let key = key(holder, u64::from_le_bytes(bytes));
        let nudged = Arc::new(Notify::new());
        live().insert(key, Arc::clone(&nudged));
        Self { key, nudged }
    }

    /// Its number.
    pub(crate) const fn number(&self) -> u64 {
        self.key.2
    }

    /// Is told when another task of this process added to the log.
    pub(crate) fn nudged(&self) -> Arc<Notify> {
        Arc::clone(&self.nudged)
    }
}

impl Drop for LiveClaim {
    fn drop(&mut self) {
        live().remove(&self.key);
    }
}

/// Whether a handle of this process holds this claim of its own.
pub(crate) fn is_live(holder: &Holder, number: u64) -> bool {
    live().contains_key(&key(holder, number))
}

/// Tells a handle of this process that its log has grown; says whether there is one.
pub(crate) fn nudge(holder: &Holder, number: u64) -> bool {
    let found = live().get(&key(holder, number)).cloned();
    found.inspect(|nudged| nudged.notify_one()).is_some()
}

/// Tells all of them.
pub(crate) fn nudge_all() {
    live().values().for_each(|nudged| nudged.notify_one());
}
