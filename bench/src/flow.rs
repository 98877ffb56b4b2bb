//! Workflows without a store: what a node costs, on lines of 10 to 10,000 and a fan-out of 100, and how long a
//! document of 10,000 nodes takes to read and check. Times are of the process's CPU.

use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use piton_flow::{Document, Flow, Format, Host, Ids, Inputs, Kinds, NoJournal, run as run_flow};
use piton_runtime::SystemClock;

use crate::measure::report;

#[derive(Default)]
pub(crate) struct Counter(std::sync::atomic::AtomicU64);

impl Ids for Counter {
    fn next(&self) -> String {
        self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed).to_string()
    }
}

/// A line of templates and aggregators in turn.
pub(crate) fn line(nodes: usize) -> String {
    let (mut list, mut edges) = (String::new(), String::new());
    for n in 0..nodes {
        let before = if n == 0 { "in".to_owned() } else { format!("n{}", n - 1) };
        let variable = if n == 0 { "x" } else { "output" };
        if n % 2 == 0 {
            let _ = write!(
                list,
                r#",{{"id":"n{n}","data":{{"type":"template-transform","template":"a {{{{ x }}}}","variables":[{{"variable":"x","value_selector":["in","x"]}}]}}}}"#
            );
        } else {
            let _ = write!(
                list,
                r#",{{"id":"n{n}","data":{{"type":"variable-aggregator","variables":[["{before}","{variable}"]]}}}}"#
            );
        }
        let _ = write!(edges, r#"{{"source":"{before}","target":"n{n}"}},"#);
    }
    document(&list, &edges, &format!("n{}", nodes - 1))
}

/// So many templates side by side, and one that waits for all.
fn fan(nodes: usize) -> String {
    let (mut list, mut edges) = (String::new(), String::new());
    for n in 0..nodes {
        let _ = write!(
            list,
            r#",{{"id":"n{n}","data":{{"type":"template-transform","template":"a {{{{ x }}}}","variables":[{{"variable":"x","value_selector":["in","x"]}}]}}}}"#
        );
        let _ = write!(edges, r#"{{"source":"in","target":"n{n}"}},{{"source":"n{n}","target":"last"}},"#);
    }
    list.push_str(r#",{"id":"last","data":{"type":"variable-aggregator","variables":[["n0","output"]]}}"#);
    document(&list, &edges, "last")
}

fn document(nodes: &str, edges: &str, last: &str) -> String {
    format!(
        r#"{{"nodes":[{{"id":"in","data":{{"type":"start","variables":[{{"variable":"x","type":"string"}}]}}}}{nodes},{{"id":"out","data":{{"type":"end","outputs":[{{"variable":"y","value_selector":["{last}","output"]}}]}}}}],"edges":[{edges}{{"source":"{last}","target":"out"}}]}}"#
    )
}

fn cpu() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).unwrap_or(0))
}

/// The median of the CPU times of `rounds` calls, in microseconds.
fn median(mut times: Vec<Duration>) -> f64 {
    times.sort();
    times[times.len() / 2].as_secs_f64() * 1e6
}

async fn per_node(text: &str, nodes: usize, rounds: usize) -> anyhow::Result<f64> {
    let flow = Flow::build(&Document::parse(text, Format::Json)?, &Kinds::builtin())?;
    let (journal, clock, ids) = (NoJournal::new("bench".parse()?), SystemClock::new(), Counter(0.into()));
    let mut times = Vec::with_capacity(rounds);
    for _ in 0..rounds {
        let host = Host::new(&journal, &clock, &ids);
        let inputs: Inputs = [("x".to_owned(), "bees".into())].into();
        let before = cpu();
        run_flow(&flow, inputs, &host).await?;
        times.push(cpu() - before);
    }
    #[expect(clippy::cast_precision_loss, reason = "a count of nodes")]
    let count = nodes as f64;
    Ok(median(times) / count)
}

pub(crate) async fn run(_scratch: &Path) -> anyhow::Result<()> {
    for (nodes, rounds) in [(10, 401), (100, 101), (1_000, 21), (10_000, 7)] {
        let cost = per_node(&line(nodes), nodes, rounds).await?;
        report(&format!("CPU of a node on a line of {nodes}"), &format!("{cost:.2} µs"), "10 µs");
    }
    report("CPU of a node in a fan-out of 100", &format!("{:.2} µs", per_node(&fan(100), 100, 101).await?), "10 µs");
    let text = line(10_000);
    let mut times = Vec::new();
    for _ in 0..7 {
        let before = cpu();
        Flow::build(&Document::parse(&text, Format::Json)?, &Kinds::builtin())?;
        times.push(cpu() - before);
    }
    let what = format!("read and check 10,000 nodes, {} KB of JSON", text.len() / 1024);
    report(&what, &format!("{:.0} ms", median(times) / 1e3), "200 ms");
    Ok(())
}
