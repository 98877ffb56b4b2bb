//! Samples, and what is said about them.

use std::time::{Duration, Instant};

/// Times of one operation.
#[derive(Debug, Default, Clone)]
pub(crate) struct Samples(pub(crate) Vec<Duration>);

impl Samples {
    /// Times one call.
    pub(crate) fn time<T>(&mut self, call: impl FnOnce() -> T) -> T {
        let start = Instant::now();
        let out = call();
        self.0.push(start.elapsed());
        out
    }

    /// The quantile `q`, in microseconds.
    pub(crate) fn quantile(&self, q: f64) -> f64 {
        quantile(&self.0, q)
    }
}

/// The quantile `q` of some times, in microseconds.
pub(crate) fn quantile(samples: &[Duration], q: f64) -> f64 {
    at(samples.iter().map(|time| time.as_secs_f64() * 1e6).collect(), q)
}

/// The median of figures that each stand for a round.
pub(crate) fn middle(figures: Vec<f64>) -> f64 {
    at(figures, 0.5)
}

fn at(mut sorted: Vec<f64>, q: f64) -> f64 {
    sorted.sort_by(f64::total_cmp);
    let last = sorted.len() - 1;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "an index"
    )]
    let at = (last as f64 * q).round() as usize;
    sorted[at.min(last)]
}

/// Prints one line of a result: what, the figure, and the bound if there is one.
#[expect(clippy::print_stdout, reason = "the results are this program's output")]
pub(crate) fn report(what: &str, figure: &str, bound: &str) {
    let bound = if bound.is_empty() { String::new() } else { format!("(bound: {bound})") };
    println!("{what:<64} {figure:>18} {bound}");
}

/// `a / b` with two digits.
pub(crate) fn ratio(a: f64, b: f64) -> String {
    format!("{:.2} x", a / b)
}

/// Bytes of all files of a folder.
pub(crate) fn disk(folder: &std::path::Path) -> anyhow::Result<u64> {
    let mut total = 0;
    for entry in std::fs::read_dir(folder)? {
        total += entry?.metadata()?.len();
    }
    Ok(total)
}
