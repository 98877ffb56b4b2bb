//! A person who is asked while no process is alive.

use super::Stage;
use crate::failure::Failure;

const DOCUMENT: &str = "nodes:
  - {id: in, data: {type: start}}
  - {id: draft, data: {type: command, command: [sh, -c, 'echo drafted >> drafts; printf %s Draft.']}}
  - {id: review, data: {type: human-input, prompt: 'Publish this? {{#draft.stdout#}}', resume_mode: approval}}
  - {id: publish, data: {type: template-transform, template: published}}
  - {id: drop, data: {type: template-transform, template: dropped}}
  - {id: out, data: {type: end, outputs: [{variable: result, value_selector: [publish, output]}]}}
edges:
  - {source: in, target: draft}
  - {source: draft, target: review}
  - {source: review, sourceHandle: approve, target: publish}
  - {source: review, sourceHandle: reject, target: drop}
  - {source: publish, target: out}
  - {source: drop, target: out}
";

pub(super) async fn show(stage: &mut Stage<'_>) -> Result<(), Failure> {
    stage.title("People: a question that outlives the process")?;
    stage.write("publish.yml", DOCUMENT)?;
    let asked = stage.run(&["run", "publish.yml", "--id", "ask"]).await?;
    stage.say("That process has ended. Now, or in a week, from anywhere:")?;
    stage.run(&["ls", "--waiting"]).await?;
    let answered = stage.run(&["answer", "ask", "--set", "approved=true"]).await?;
    let resumed = stage.run(&["resume", "ask"]).await?;
    let drafts = std::fs::read_to_string(stage.project().join("drafts")).unwrap_or_default();
    stage.claim(
        asked.code == Some(3) && answered.code == Some(0) && resumed.stdout.contains("published"),
        "the question was answered by another process, and the run went on from there",
    );
    stage.claim(drafts.lines().count() == 1, "what was done before the question was done once");
    Ok(())
}
