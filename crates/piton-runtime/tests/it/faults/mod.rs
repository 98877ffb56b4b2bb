//! A program with an outside counter is crashed at every store call, killed at random moments, raced for and
//! frozen; resumed until it ends. The six properties of decision 5 each have a test that is named after them.

mod crashes;
mod kills;
mod program;
mod rivals;
