//! A program with an outside counter is crashed at every store call, killed at random moments, raced for and
//! frozen; resumed until it ends. The six properties of decision 5 each have a test that is named after them.

mod crashes;
mod kills;
mod program;
mod rivals;

/// How much to do: `PITON_TEST` is `quick`, `standard` or `full`.
pub(crate) fn by_level(quick: usize, standard: usize, full: usize) -> usize {
    match std::env::var("PITON_TEST").as_deref() {
        Ok("quick") => quick,
        Ok("full") => full,
        _ => standard,
    }
}
