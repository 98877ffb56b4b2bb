//! Sleeping: the moment of waking is in the log, so a process that goes on with the run sleeps only the rest.

use std::time::Duration;

use piton_types::{from_value, to_value};

use crate::deadline::millis;
use crate::scope::Input;
use crate::{Deadline, RunError, Scope};

impl Scope {
    /// Sleeps. If the process dies meanwhile, the next one that goes on with the run sleeps what is left; if that
    /// has passed, not at all.
    ///
    /// It costs one commit. It ends early, with [`RunError::Stopped`], if the run is told to stop.
    pub async fn sleep(&mut self, duration: Duration) -> Result<(), RunError> {
        let place = self.place("sleep")?;
        let core = &*self.core;
        let input = Input::new(&place.path, &millis(duration))?;
        let what = || RunError::value(format!("the end of {}", place.path));
        let until: Deadline = match core.find(&place, &input).await? {
            Some(record) => from_value(record.output).map_err(what())?,
            None => {
                core.check_ready()?;
                core.check_alone(&place.path)?;
                let until = Deadline::after(&core.context, duration);
                let mut record = core.blank(&place, input, 0);
                record.output = to_value(&until).map_err(what())?;
                core.put_down(record, Vec::new(), core.durability).await?;
                until
            }
        };
        let left = until.left(&core.context);
        if left.is_zero() || core.pause(left).await {
            return Ok(());
        }
        core.obey().await?;
        Err(core.stopped())
    }
}
