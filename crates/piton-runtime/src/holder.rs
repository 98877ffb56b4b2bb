//! Which process drives a run, and whether it still lives.

use piton_types::Holder;

use crate::platform;

/// What is known of a holder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Liveness {
    /// It runs on this host.
    Alive,
    /// It ran on this host and doesn't any more.
    Dead,
    /// It is on another host, or this system can't tell.
    Unknown,
}

/// This process.
pub fn this_process() -> Holder {
    platform::this_process()
}

/// The process of this host with this number; `None` if there is none, or this system can't tell.
pub fn process(pid: u32) -> Option<Holder> {
    platform::process(pid)
}

/// The program that this process works for: its nearest ancestor that is no shell. `None` if this system can't tell.
pub fn calling_program() -> Option<Holder> {
    platform::calling_program()
}

/// What can be known of `holder` from where `me` is, without asking it.
///
/// Same host and boot: its process id and start time tell. Same host and another boot: it died when that boot ended.
/// Two machines of the same name are taken for one host, so give machines that share a store different
/// names.
pub fn liveness(holder: &Holder, me: &Holder) -> Liveness {
    if holder == me {
        return Liveness::Alive;
    }
    if holder.host != me.host || me.boot.is_empty() || holder.boot.is_empty() {
        return Liveness::Unknown;
    }
    if holder.boot != me.boot {
        return Liveness::Dead;
    }
    match platform::is_running(holder.pid, holder.started) {
        Some(true) => Liveness::Alive,
        Some(false) => Liveness::Dead,
        None => Liveness::Unknown,
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn only_the_dead_of_this_host_are_declared_dead() {
        let me = this_process();
        let other = |change: fn(&mut Holder)| {
            let mut holder = me.clone();
            change(&mut holder);
            liveness(&holder, &me)
        };
        assert_eq!(other(|_| {}), Liveness::Alive);
        assert_eq!(other(|holder| holder.started += 1), Liveness::Dead);
        assert_eq!(other(|holder| holder.pid = u32::MAX), Liveness::Dead);
        assert_eq!(other(|holder| holder.boot = "another".into()), Liveness::Dead);
        assert_eq!(other(|holder| holder.boot = String::new()), Liveness::Unknown);
        assert_eq!(other(|holder| holder.host = "elsewhere".into()), Liveness::Unknown);
        let mut first = me.clone();
        (first.pid, first.started) = (1, 0);
        assert_eq!(liveness(&first, &me), Liveness::Dead, "process 1 didn't start before the boot");
    }
}
