//! What there is to measure, in the text form of Prometheus. Nothing is kept but counters; how the store stands is counted
//! when it is asked for.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::http::StatusCode;
use piton_app::Failure;
use piton_app::runs::summary::summary;

use crate::server::Server;

/// What happened in this process.
#[derive(Default)]
pub(crate) struct Counts {
    /// Answers by the hundreds of their status.
    answers: [AtomicU64; 6],
    steps: AtomicU64,
    failed_steps: AtomicU64,
    step_micros: AtomicU64,
}

impl Counts {
    pub(crate) fn answered(&self, status: StatusCode) {
        if let Some(count) = self.answers.get(usize::from(status.as_u16() / 100)) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn step(&self, took: Duration, failed: bool) {
        let count = if failed { &self.failed_steps } else { &self.steps };
        count.fetch_add(1, Ordering::Relaxed);
        self.step_micros.fetch_add(u64::try_from(took.as_micros()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }
}

/// The text.
pub(crate) async fn text(server: &Server) -> Result<String, Failure> {
    let view = summary(&server.app).await?;
    let mut page = Page::default();
    page.family("piton_runs", "gauge", "Runs by state.");
    for (status, count) in &view.counts {
        page.line("piton_runs", &[("state", status)], count);
    }
    page.one("piton_runs_stalled", "gauge", "Runs in progress that no process drives.", view.stalled);
    page.one("piton_runs_driven", "gauge", "Runs that this server drives.", server.drives.runs().len());
    page.one("piton_store_bytes", "gauge", "What the store takes.", view.bytes);
    if let Some(depth) = view.queue {
        page.family("piton_queue_depth", "gauge", "Runs in the queue: due now, later, held by a worker.");
        for (state, count) in [("due", depth.due), ("later", depth.later), ("held", depth.held)] {
            page.line("piton_queue_depth", &[("state", state)], count);
        }
    }
    page.one("piton_workers", "gauge", "Workers of the store.", view.workers.len());
    page.family("piton_worker_runs", "gauge", "Runs that a worker has.");
    for worker in &view.workers {
        page.line("piton_worker_runs", &[("worker", &worker.name)], worker.runs);
    }
    page.family("piton_worker_silence_seconds", "gauge", "How long ago a worker gave its last sign of life.");
    for worker in &view.workers {
        page.line("piton_worker_silence_seconds", &[("worker", &worker.name)], seconds(worker.silent_for_ms * 1000));
    }
    calls(server, &mut page);
    let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
    let counts = &server.counts;
    page.family("piton_steps_total", "counter", "Steps that ended in runs that this server drove.");
    page.line("piton_steps_total", &[("result", "completed")], load(&counts.steps));
    page.line("piton_steps_total", &[("result", "failed")], load(&counts.failed_steps));
    page.one(
        "piton_step_seconds_total",
        "counter",
        "How long those that completed took together.",
        seconds(load(&counts.step_micros)),
    );
    page.family("piton_http_answers_total", "counter", "Answers by the hundreds of their status.");
    for (class, name) in ["2xx", "3xx", "4xx", "5xx"].into_iter().enumerate() {
        page.line("piton_http_answers_total", &[("status", name)], load(&counts.answers[class + 2]));
    }
    Ok(page.0)
}

/// What the store was asked for, and how long it took: commits are what a save waits for.
fn calls(server: &Server, page: &mut Page) {
    let metrics = server.app.metrics();
    let calls: Vec<_> = metrics.iter().flat_map(|metrics| metrics.all()).collect();
    let name = |call| serde_json::to_value(call).ok().and_then(|name| name.as_str().map(str::to_owned));
    let named: Vec<_> = calls.iter().filter_map(|call| Some((name(call.call)?, call))).collect();
    page.family("piton_store_call_seconds", "summary", "Calls to the store, by what they are.");
    for (name, call) in &named {
        for (quantile, micros) in [("0.5", call.p50_us), ("0.9", call.p90_us), ("0.99", call.p99_us)] {
            page.line("piton_store_call_seconds", &[("call", name), ("quantile", quantile)], seconds(micros));
        }
        page.line("piton_store_call_seconds_sum", &[("call", name)], seconds(call.total_us));
        page.line("piton_store_call_seconds_count", &[("call", name)], call.count);
    }
    page.family("piton_store_call_failures_total", "counter", "Calls that failed; a conflict is one.");
    for (name, call) in &named {
        page.line("piton_store_call_failures_total", &[("call", name)], call.failed);
    }
    page.family("piton_store_call_bytes_total", "counter", "Bytes that were stored or read.");
    for (name, call) in &named {
        page.line("piton_store_call_bytes_total", &[("call", name)], call.bytes);
    }
}

#[expect(clippy::cast_precision_loss, reason = "seconds are floats there")]
fn seconds(micros: u64) -> f64 {
    micros as f64 / 1e6
}

#[derive(Default)]
struct Page(String);

impl Page {
    fn family(&mut self, name: &str, kind: &str, about: &str) {
        // Writing to a text doesn't fail.
        let _ = write!(self.0, "# HELP {name} {about}\n# TYPE {name} {kind}\n");
    }

    fn one(&mut self, name: &str, kind: &str, about: &str, value: impl std::fmt::Display) {
        self.family(name, kind, about);
        self.line(name, &[], value);
    }

    fn line(&mut self, name: &str, labels: &[(&str, &str)], value: impl std::fmt::Display) {
        let labels: Vec<_> = labels
            .iter()
            .map(|(name, text)| {
                let text = text.replace('\\', r"\\").replace('"', "\\\"").replace('\n', r"\n");
                format!("{name}=\"{text}\"")
            })
            .collect();
        let labels = if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
        let _ = writeln!(self.0, "{name}{labels} {value}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_others_do_not_break_lines() {
        let mut page = Page::default();
        page.line("m", &[("worker", "a\"b\\c\nd")], 1);
        assert_eq!(page.0, "m{worker=\"a\\\"b\\\\c\\nd\"} 1\n");
    }
}
