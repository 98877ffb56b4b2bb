//! Durable steps: kill this program whenever you like and start it again; no step that finished runs again.
//!
//! ```console
//! $ cargo run -p piton-examples --bin durable_steps -- report.db
//! ```
#![expect(clippy::print_stdout, reason = "a program for people")]

use std::error::Error;
use std::time::Duration;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args().nth(1).unwrap_or_else(|| "report.db".to_owned());
    let piton = piton::open(&format!("sqlite:{path}")).await?;

    // The id decides: a run of this name is created, or gone on with.
    let mut run = piton.run("weekly-report").await?;
    if let Some(outcome) = run.outcome() {
        println!("it was done before: {outcome:?}");
        return Ok(());
    }

    let pages: Vec<String> = run
        .step("list", (), async |()| work("list", ["bees", "wasps", "ants"].map(str::to_owned).to_vec()).await)
        .await?;
    let mut summaries = Vec::new();
    for page in &pages {
        // Calls of one name are told apart by their order: summarise, summarise#2, …
        let summary: String =
            run.step("summarise", page, async |page| work("summarise", format!("{page} are busy")).await).await?;
        summaries.push(summary);
    }
    let report: String = run.step("write", &summaries, async |all| work("write", all.join(". ")).await).await?;
    run.complete(&report).await?;
    println!("{report}");
    Ok(())
}

/// Stands for something slow that costs money. What it prints, it really did.
async fn work<T>(what: &str, result: T) -> Result<T, std::io::Error> {
    println!("working: {what}");
    tokio::time::sleep(Duration::from_millis(200)).await;
    Ok(result)
}
