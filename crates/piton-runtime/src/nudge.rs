//! Being told at once that a log has grown. A process that adds to the log of a run that another process of this host
//! drives sends that process a signal. A process that doesn't listen to this signal ignores it.

/// Makes this process look at the logs of its runs as soon as another process of this host has added
/// something, rather than within a second. It takes the signal `SIGURG`, so it is the program's choice.
///
/// Call it once, within a tokio runtime with I/O. Where there are no signals it does nothing.
///
/// # Errors
///
/// If the system refuses.
pub fn listen_for_nudges() -> std::io::Result<()> {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        let urgent = SignalKind::from_raw(rustix::process::Signal::URG.as_raw());
        let mut nudges = signal(urgent)?;
        tokio::spawn(async move {
            while nudges.recv().await.is_some() {
                crate::live::nudge_all();
            }
        });
    }
    Ok(())
}
