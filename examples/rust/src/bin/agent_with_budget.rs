//! An agent's own loop: a conversation that is kept, a budget that no restart resets, and a checkpoint before anything
//! dangerous. The model here is a function; yours would be a request.
//!
//! ```console
//! $ cargo run -p piton-examples --bin agent_with_budget -- agent.db
//! ```
#![expect(clippy::print_stdout, reason = "a program for people")]

use std::error::Error;
use std::sync::Arc;

use piton::agent::danger::Classifier;
use piton::agent::{AgentContext, AgentError, Autosave, Budget, Message, Operation, Paid, TokenUsage, TriggerPolicy};

/// What one answer may cost at most.
const ESTIMATE: TokenUsage = TokenUsage { input: 0, output: 0, cost: 0.02 };

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args().nth(1).unwrap_or_else(|| "agent.db".to_owned());
    let run = Arc::new(piton::open(&format!("sqlite:{path}")).await?.run("helper").await?);
    let mut agent = AgentContext::open(&run).await?;
    let dangers = Classifier::default();
    let mut autosave = Autosave::new(Arc::clone(&run), TriggerPolicy::default());
    if agent.message_count().await? == 0 {
        agent.set_budget(Budget { max_cost: Some(0.05), ..Budget::default() }).await?;
        agent.push_message(&Message::user("Tidy this folder up.")).await?;
    }
    let begun = agent.ledger().calls;
    println!("{begun} calls were paid before");

    for turn in 1.. {
        // The answer, what it cost and what it adds to the conversation are one entry: all of it survives, or none.
        let answer: Result<String, AgentError> =
            agent.paid(&run, &format!("turn/{turn}").parse()?, turn, ESTIMATE, model).await;
        match answer {
            Ok(command) => {
                println!("turn {turn}: {command}");
                // What isn't known to be harmless waits until a checkpoint is durable.
                let saved = dangers.save_before(Operation::Shell(&command), &mut autosave, &mut agent).await?;
                println!(
                    "  {}",
                    saved.map_or("harmless".to_owned(), |checkpoint| format!("checkpoint {checkpoint} first"))
                );
            }
            Err(over @ AgentError::OverCost { .. }) => {
                println!("turn {turn} wasn't asked: {over}");
                break;
            }
            Err(error) => return Err(error.into()),
        }
    }
    autosave.finish(&mut agent).await?;
    println!("paid: {} calls, {:.2}", agent.ledger().calls, agent.ledger().used.cost);
    Ok(())
}

async fn model(turn: u64) -> Paid<String, std::io::Error> {
    let command = if turn == 1 { "ls" } else { "rm -rf build" };
    Paid {
        result: Ok(command.to_owned()),
        usage: TokenUsage { input: 40, output: 5, cost: 0.02 },
        messages: vec![Message::assistant(command)],
    }
}
