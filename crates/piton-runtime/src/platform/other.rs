//! Systems of which we know nothing yet (macOS, Windows). A process is told from others by its id and
//! the moment it first asked; whether another one lives isn't known, so no process is declared dead.

use std::sync::OnceLock;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use piton_types::Holder;

/// This process.
pub(crate) fn this_process() -> Holder {
    static STARTED: OnceLock<u64> = OnceLock::new();
    let started = *STARTED.get_or_init(|| {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
    });
    Holder { host: "this host".to_owned(), boot: String::new(), pid: std::process::id(), started }
}

/// Never known.
pub(crate) const fn process(_pid: u32) -> Option<Holder> {
    None
}

/// Never known.
pub(crate) const fn calling_program() -> Option<Holder> {
    None
}

/// Never known.
pub(crate) const fn is_running(_pid: u32, _started: u64) -> Option<bool> {
    None
}

/// No process can be told.
pub(crate) const fn nudge(_pid: u32, _started: u64) {}

/// Never known.
pub(crate) const fn since_boot() -> Option<Duration> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_stays_itself_and_nobody_is_declared_dead() {
        assert_eq!(this_process(), this_process());
        assert_eq!((process(1), calling_program(), is_running(1, 1)), (None, None, None));
        assert_eq!(since_boot(), None);
        nudge(1, 1);
    }
}
