//! Test cases as data: a folder with a document, its inputs, the world around it and what should come
//! out. `docs/workflows.md` describes the format.
//!
//! A case touches nothing outside: its HTTP, models, tools and programs are answered by what it says itself, its time stands
//! still, its ids are counted. What it doesn't answer is refused, unless the user lets it go outside.

mod acts;
mod case;
mod compare;
mod durable;
mod dying;
mod http;
mod junit;
mod kill;
mod run;
mod script;
mod seen;
mod tools;
mod world;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

pub use case::{Case, find};
pub use dying::Death;
pub use junit::junit;
pub use kill::{Campaign, Counts, Victim, kill_everywhere, run_and_die};
pub use run::{Outcome, Verdict, run};

/// The case in a folder, on a task of its own: what it computes doesn't hold up the others. With a campaign it is killed
/// everywhere; with `outside` it may run programs and use the network for real.
pub async fn run_folder(folder: PathBuf, outside: bool, kill: Option<(Campaign, Arc<Counts>)>) -> Outcome {
    let name = folder.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let work = tokio::spawn(async move {
        match Case::load(&folder, outside) {
            Ok(case) => Ok(match kill {
                Some((plan, counts)) => kill_everywhere(case, &plan, &counts).await,
                None => run(case).await,
            }),
            Err(message) => Err(message),
        }
    });
    let failed = |message: String| Outcome {
        name: name.clone(),
        verdict: Verdict::Failed(vec![message]),
        duration: Duration::ZERO,
    };
    match work.await {
        Ok(Ok(outcome)) => outcome,
        Ok(Err(message)) => failed(message),
        Err(error) => failed(format!("the case could not be run: {error}")),
    }
}
