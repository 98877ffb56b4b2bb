//! What the writers of two versions of a text were after, as the history tells it: the prompts, the tool calls with what they
//! were given, the commands. A resolver is told, because the lines alone don't say which of two changes matters.

use piton_log::RunLog;
use piton_store::StoreError;
use piton_types::{RunId, Value, to_json};

use crate::record::Role;
use crate::reports::INPUT;
use crate::timeline::{Moment, Timeline};
use crate::{Workspace, WorkspaceError};

/// How many pieces of work are told of each side, the newest ones.
const TOLD: usize = 8;

/// How much is told of each.
const LONGEST: usize = 600;

/// What both sides were after, in words; empty if nothing is known.
#[derive(Debug, Clone, Default)]
pub(crate) struct Intents {
    /// The agents whose work is taken back.
    pub(crate) agent: String,
    /// Others who worked in the folder since.
    pub(crate) others: String,
}

impl Workspace {
    /// What happened from a place of the history on. Work of `of`, or of any run if none is named, is what is taken back.
    pub(crate) async fn intents(
        &self,
        timeline: &Timeline,
        from: usize,
        of: Option<&RunId>,
    ) -> Result<Intents, WorkspaceError> {
        let (mut agent, mut others) = (Vec::new(), Vec::new());
        for moment in &timeline.moments[from..] {
            let Some(line) = self.work(moment).await? else { continue };
            let is_agent = of.is_none_or(|run| moment.checkpoint.run == *run);
            let side = if is_agent { &mut agent } else { &mut others };
            side.push(line);
        }
        let words = |lines: Vec<String>| lines[lines.len().saturating_sub(TOLD)..].join("; ");
        Ok(Intents { agent: words(agent), others: words(others) })
    }

    /// What a moment says of the work that began with it.
    async fn work(&self, moment: &Moment) -> Result<Option<String>, WorkspaceError> {
        let record = &moment.record;
        let what = match (&record.role, &record.tool) {
            // With its end, a tool call has what it was given.
            (Role::Closed { .. }, Some(tool)) => format!("tool {tool}"),
            (Role::Saved, None) if record.is_turn() => "prompt".to_owned(),
            (Role::Opened, None) => {
                let summary = self.store().summary(&moment.checkpoint.run).await?;
                return Ok(summary.map(|summary| cut(&format!("session {}", summary.name))));
            }
            _ => return Ok(None),
        };
        let given = match self.given(moment).await {
            // What it was given may have been removed or damaged; that it took place is known all the same.
            Err(WorkspaceError::Store(StoreError::Corrupt { .. } | StoreError::NotFound { .. })) => None,
            given => given?,
        };
        let given = match given {
            Some(Value::String(text)) => text,
            Some(value) => to_json(&value).map(|json| json.to_string()).unwrap_or_default(),
            None => record.description.clone(),
        };
        Ok(Some(cut(&format!("{what}: {given}"))))
    }

    async fn given(&self, moment: &Moment) -> Result<Option<Value>, WorkspaceError> {
        let log = RunLog::open(std::sync::Arc::clone(self.store()), &moment.checkpoint.run).await?;
        let entry = log.entry(moment.checkpoint.seq).await?;
        Ok(log.body(&entry).await?.field(INPUT).cloned())
    }
}

fn cut(text: &str) -> String {
    text[..text.floor_char_boundary(LONGEST)].to_owned()
}
