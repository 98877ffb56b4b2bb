//! The services of a case: models and tools that its own servers answer.

use piton::Services;

use super::case::State;

/// What the nodes of a case may use. `base` is the address of its HTTP server.
pub(crate) fn services(_state: &State, _base: Option<&str>) -> Result<Services, String> {
    Ok(Services::default())
}
