//! `piton doctor`: what this machine has of all that Piton can use, and how to mend what is missing.

use piton_app::store::doctor::doctor;
use piton_app::views::store::FindingView;

use crate::failure::{Exit, Failure};
use crate::output::clean;
use crate::session::Session;

pub(crate) async fn execute(session: &Session) -> Result<Exit, Failure> {
    let found = doctor(session, env!("CARGO_PKG_VERSION")).await;
    if session.output.is_json() {
        session.output.view(&found)?;
    } else {
        let mut lines = Vec::new();
        for FindingView { check, status, detail, fix } in &found.findings {
            lines.push(format!("{:<8} {check:<9} {}", status.as_str(), clean(detail)));
            lines.extend(fix.as_ref().map(|fix| format!("{:18} fix: {}", "", clean(fix))));
        }
        session.output.data(&session.output.pasted(&lines.join("\n")))?;
    }
    Ok(if found.ok { Exit::Done } else { Exit::UserFixable })
}
