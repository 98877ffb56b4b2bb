//! An agent that is killed in the middle and goes on there, beside the same one that wasn't killed.

use super::model::Model;
use super::{Stage, finished};
use crate::failure::Failure;

/// The turn in which the agent is killed.
const KILLED_IN: u32 = 7;

pub(super) async fn show(stage: &mut Stage<'_>) -> Result<(), Failure> {
    stage.title("Agents: killed in turn 7, gone on in turn 7")?;
    let model = Model::start().await?;
    stage.write("models.toml", &model.config())?;
    stage.write("research.yml", &document(&model.pages()))?;
    stage.say("A model on this machine, which counts what it is asked, and an agent that reads ten pages:")?;

    let whole = stage.run(&run("whole")).await?;
    let uninterrupted = model.take_asked();
    stage
        .say(&format!("Undisturbed, it asked the model {uninterrupted} times.\nOnce more, with kill -9 in turn 7:"))?;

    stage.say(&format!("$ piton {}", run("killed").join(" ")))?;
    let child = stage.start(&run("killed"))?;
    let pid = child.id().and_then(|pid| i32::try_from(pid).ok()).and_then(rustix::process::Pid::from_raw);
    model.kill_at(KILLED_IN, pid);
    let killed = finished(child).await?;
    let before = model.asked();
    stage.say(&format!("  killed, after {before} questions to the model"))?;
    let resumed = stage.run(&["resume", "killed", "--config", "models.toml"]).await?;
    let together = model.take_asked();

    stage.say("And from the start, as one would do without checkpoints:")?;
    stage.quietly(&run("again")).await?;
    let from_zero = before + model.take_asked();
    stage.say(&format!("  {from_zero} questions, {before} of them for nothing"))?;

    stage.claim(
        killed.code.is_none() && before == u64::from(KILLED_IN) && resumed.code == Some(0),
        "the agent was killed in turn 7 and came to its end when it was resumed",
    );
    stage.claim(
        resumed.stdout == whole.stdout && whole.code == Some(0) && whole.stdout.contains("10 pages"),
        "it gave what the undisturbed one gave",
    );
    stage.claim(
        together == uninterrupted && from_zero > uninterrupted,
        format!("the model was asked {together} times in all; undisturbed {uninterrupted}, from zero {from_zero}"),
    );
    Ok(())
}

fn run(id: &str) -> [&str; 7] {
    ["run", "research.yml", "--id", id, "--config", "models.toml", "-q"]
}

fn document(pages: &str) -> String {
    format!(
        "nodes:
  - {{id: in, data: {{type: start}}}}
  - id: research
    data:
      type: agent
      model: {{provider: openai, name: demo}}
      system_prompt: Read every page before you answer.
      query: What do the pages from {pages}/1 to {pages}/10 say?
      tools: {{builtin: [fetch]}}
      max_iterations: 20
  - {{id: out, data: {{type: end, outputs: [{{variable: text, value_selector: [research, text]}}]}}}}
edges:
  - {{source: in, target: research}}
  - {{source: research, target: out}}
"
    )
}
