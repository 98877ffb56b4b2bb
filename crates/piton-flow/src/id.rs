//! The name of a node. It is the node's place in the run's log too, so it is parsed strictly.

use std::fmt;
use std::str::FromStr;

use piton_types::StepPath;

/// The name of a node within its document.
///
/// 1 to 128 bytes without control characters, `/` and `#` (which step paths use), and none of the words
/// that variables use.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(StepPath);

/// First words of selectors that don't name a node.
const RESERVED: [&str; 3] = ["sys", "env", "conversation"];

/// Why a text is no node id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the id is not valid: {reason}")]
pub struct InvalidNodeId {
    /// What is wrong with it.
    pub reason: &'static str,
}

impl NodeId {
    /// The longest id, in bytes.
    pub const MAX_LEN: usize = 128;

    /// The id as text.
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }

    /// The id as shared text.
    pub(crate) fn shared(&self) -> std::sync::Arc<str> {
        self.0.shared()
    }

    /// The place of the node's result in the log of its run.
    pub const fn step(&self) -> &StepPath {
        &self.0
    }
}

impl FromStr for NodeId {
    type Err = InvalidNodeId;

    fn from_str(text: &str) -> Result<Self, InvalidNodeId> {
        let fail = |reason| Err(InvalidNodeId { reason });
        if text.len() > Self::MAX_LEN {
            return fail("it is longer than 128 bytes");
        }
        if text.contains(['/', '#']) {
            return fail("'/' and '#' are not allowed");
        }
        if RESERVED.contains(&text) {
            return fail("the word is reserved for variables");
        }
        text.parse()
            .map(Self)
            .or_else(|_| fail(if text.is_empty() { "it is empty" } else { "it has a control character" }))
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_ids_are_refused() {
        let long = "x".repeat(300);
        for bad in ["", "a/b", "a#2", "a\nb", "\0", "sys", "env", "conversation", &long] {
            assert!(bad.parse::<NodeId>().is_err(), "{bad:?}");
        }
        for good in ["start", "1711529372986", "Über uns", "a.b"] {
            assert_eq!(good.parse::<NodeId>().unwrap().as_str(), good);
        }
    }
}
