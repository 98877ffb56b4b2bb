//! JavaScript of code nodes: what a call costs beyond its script.

use std::sync::Arc;
use std::time::{Duration, Instant};

use piton_code::{CodeLimits, JavaScript, Surroundings};
use piton_types::{Random, Timestamp, Value};

use crate::flow_durable::cpu;
use crate::measure::{Samples, report};

struct Zeros;

impl Random for Zeros {
    fn fill(&self, bytes: &mut [u8]) {
        bytes.fill(0);
    }
}

const CALLS: u32 = 5_000;

/// A script that does next to nothing, so that the whole call is overhead.
const LITTLE: &str = "function main(inputs) { return { n: inputs.n + 1 } }";

/// A script that works for a while, to hold the former against.
const MUCH: &str = "function main(inputs) { let n = 0; for (let i = 0; i < 100000; i++) n += i % 7; return { n } }";

pub(crate) async fn run() -> anyhow::Result<()> {
    let surroundings = Surroundings { now: Timestamp::from_millis(0), random: Arc::new(Zeros), stop: Arc::default() };
    let inputs = Value::map([("n", Value::from(41)), ("text", Value::from("a text of some length".repeat(10)))]);
    let limits = CodeLimits::default();
    let (mut rested, mut busy, mut much) = <(Samples, Samples, Samples)>::default();
    let start_one = async |code: &str| {
        let (given, around) = (inputs.clone(), surroundings.clone());
        let start = Instant::now();
        JavaScript.start(code.into(), given, limits, around).await?;
        anyhow::Ok(start.elapsed())
    };
    for _ in 0..1_000 {
        rested.0.push(start_one(LITTLE).await?);
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let before = cpu();
    for _ in 0..CALLS {
        busy.0.push(start_one(LITTLE).await?);
    }
    let all = (cpu() - before) / CALLS;
    for _ in 0..100 {
        much.0.push(start_one(MUCH).await?);
    }
    let micros = |samples: &mut Samples| format!("{:.0} us", samples.quantile(0.5));
    report("JavaScript: a script of next to nothing, now and then", &micros(&mut rested), "100 us");
    report("JavaScript: the same 5,000 times in a row, each", &micros(&mut busy), "100 us");
    report("JavaScript: CPU of each of those, of all threads", &format!("{:.0} us", all.as_secs_f64() * 1e6), "");
    report("JavaScript: a call with 100,000 turns of a loop", &micros(&mut much), "");
    Ok(())
}
