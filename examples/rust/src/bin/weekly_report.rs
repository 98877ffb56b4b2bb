//! The program that docs/rust.md begins with, to the letter.
#![expect(clippy::print_stdout, reason = "a program for people")]

use std::error::Error;
use std::io;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let piton = piton::open("sqlite:report.db").await?;
    // The id decides: a run of this name is created, or gone on with.
    let mut run = piton.run("weekly-report").await?;
    if let Some(outcome) = run.outcome() {
        println!("it was done before: {outcome:?}");
        return Ok(());
    }

    let pages: Vec<String> = run.step("list", (), async |()| list().await).await?;
    for page in &pages {
        let summary: String = run.step("summarise", page, async |page| summarise(page).await).await?;
        println!("{summary}");
    }
    run.complete(&pages.len()).await?;
    Ok(())
}

// Stand for what is slow and costs money.
async fn list() -> io::Result<Vec<String>> {
    Ok(vec!["bees".to_owned(), "wasps".to_owned()])
}

async fn summarise(page: &str) -> io::Result<String> {
    Ok(format!("{page} are busy"))
}
