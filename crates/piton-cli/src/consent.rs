//! Asking before something is changed for good: the plan is shown, then it is agreed to on a terminal, by `--yes`,
//! or not at all.

use piton_app::Plan;

use crate::arguments::Consent;
use crate::failure::Failure;
use crate::output::clean;
use crate::session::Session;
use crate::terminal::answer;

/// Shows the plan, and says whether to go on.
pub(crate) fn agreed(plan: &Plan, session: &Session, consent: Consent) -> Result<bool, Failure> {
    let text = text(plan);
    if consent.dry_run {
        if session.output.is_json() {
            session.output.view(plan)?;
        } else {
            session.output.data(&text)?;
        }
        session.output.note("nothing was done");
        return Ok(false);
    }
    session.output.note(&text);
    if consent.yes {
        return Ok(true);
    }
    match answer("Go on? [y/N] ") {
        Some(answer) if ["y", "yes"].contains(&answer.to_lowercase().as_str()) => Ok(true),
        Some(_) => {
            session.output.note("nothing was done");
            Ok(false)
        }
        None => Err(Failure::refused("no person can be asked here, and nothing was done")
            .hint("`--yes` goes on without asking, `--dry-run` shows what would be done.")),
    }
}

/// The plan as a person reads it.
pub(crate) fn text(plan: &Plan) -> String {
    std::iter::once(&plan.what).chain(&plan.lines).map(|line| clean(line)).collect::<Vec<_>>().join("\n  ")
}
