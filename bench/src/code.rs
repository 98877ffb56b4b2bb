//! JavaScript of code nodes: what a call costs beyond its script.

use std::sync::Arc;
use std::time::Instant;

use piton_code::{CodeLimits, JavaScript, Surroundings};
use piton_types::{Random, Timestamp, Value};

use crate::measure::{Samples, report};

struct Zeros;

impl Random for Zeros {
    fn fill(&self, bytes: &mut [u8]) {
        bytes.fill(0);
    }
}

/// A script that does next to nothing, so that the whole call is overhead.
const LITTLE: &str = "function main(inputs) { return { n: inputs.n + 1 } }";

/// A script that works for a while, to hold the former against.
const MUCH: &str = "function main(inputs) { let n = 0; for (let i = 0; i < 100000; i++) n += i % 7; return { n } }";

pub(crate) async fn run() -> anyhow::Result<()> {
    let surroundings = Surroundings { now: Timestamp::from_millis(0), random: Arc::new(Zeros), stop: Arc::default() };
    let inputs = Value::map([("n", Value::from(41)), ("text", Value::from("a text of some length".repeat(10)))]);
    let limits = CodeLimits::default();
    let (mut little, mut threaded, mut much) = <(Samples, Samples, Samples)>::default();
    for _ in 0..2_000 {
        let start = Instant::now();
        JavaScript.run(LITTLE, &inputs, &limits, &surroundings)?;
        little.0.push(start.elapsed());
        let (given, around) = (inputs.clone(), surroundings.clone());
        let start = Instant::now();
        JavaScript.start(LITTLE.into(), given, limits, around).await?;
        threaded.0.push(start.elapsed());
    }
    for _ in 0..100 {
        let start = Instant::now();
        JavaScript.run(MUCH, &inputs, &limits, &surroundings)?;
        much.0.push(start.elapsed());
    }
    let micros = |samples: &mut Samples| format!("{:.0} us", samples.quantile(0.5));
    report("JavaScript: until a node has what a script of next to nothing gives", &micros(&mut threaded), "100 us");
    report("JavaScript: the same on one thread, with getting ready for the next", &micros(&mut little), "");
    report("JavaScript: a call with 100,000 turns of a loop", &micros(&mut much), "");
    Ok(())
}
