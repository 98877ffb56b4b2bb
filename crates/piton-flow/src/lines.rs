//! The lines of a text at which the parts of what it says stand. Looked for only when there is a
//! problem to be placed.

use piton_types::Path;

use crate::document::Source;

/// Finds the lines of these paths.
pub(crate) fn locate<'a>(_source: &Source, _places: impl Iterator<Item = (&'a Path, &'a mut Option<usize>)>) {}
