//! Telling whoever waits at a terminal how far something has come that takes longer than a moment.

use std::future::Future;
use std::io::{IsTerminal as _, Write as _};
use std::time::Duration;

use piton_store::Call;

use crate::session::Session;
use crate::table;

/// How long nothing is said, and how long between two words.
const PATIENCE: Duration = Duration::from_millis(500);

/// Waits for `work`, and shows `words` while it takes long. Nothing is shown to a program, to somebody who wants it
/// quiet, or beside data.
pub(crate) async fn showing<T>(session: &Session, words: impl Fn() -> String, work: impl Future<Output = T>) -> T {
    let mut work = std::pin::pin!(work);
    let output = &session.output;
    if output.is_json() || !output.is_chatty() || !std::io::stderr().is_terminal() {
        return work.await;
    }
    let mut shown = false;
    loop {
        match tokio::time::timeout(PATIENCE, work.as_mut()).await {
            Ok(done) => {
                if shown {
                    let _ = write!(std::io::stderr(), "\r\x1b[K");
                }
                return done;
            }
            Err(_) => {
                let _ = write!(std::io::stderr(), "\r\x1b[K{}", words());
                shown = true;
            }
        }
    }
}

/// The same for something that goes through a store: what was read and written so far.
pub(crate) async fn through_stores<T>(session: &Session, doing: &str, work: impl Future<Output = T>) -> T {
    let words = || {
        let (mut read, mut written) = (0, 0);
        for metrics in session.metrics() {
            read += [Call::Read, Call::Section, Call::Pack].map(|call| metrics.of(call).bytes).iter().sum::<u64>();
            written += metrics.written();
        }
        format!("{doing}: {} read, {} written", table::size(read), table::size(written))
    };
    showing(session, words, work).await
}
