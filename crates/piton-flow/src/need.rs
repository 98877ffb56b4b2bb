//! What a document needs from wherever it runs: models, tools, programs. A need that isn't met is no
//! mistake of the document; it is told before anything runs, never in mid-run.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use serde::Serialize;

/// Something that a node can't run without.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(tag = "need", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Need {
    /// A node kind that isn't known here.
    Kind {
        /// Its name.
        kind: String,
    },
    /// A language model.
    Model {
        /// Who offers it, as in `openai`.
        provider: String,
        /// Its name.
        model: String,
    },
    /// A tool.
    Tool {
        /// Who offers it.
        provider: String,
        /// Its name.
        tool: String,
    },
    /// An MCP server.
    McpServer {
        /// Its name.
        server: String,
        /// The document says how it is started or reached; else the user's configuration has to.
        described: bool,
    },
    /// A knowledge base.
    Knowledge {
        /// Its id.
        dataset: String,
    },
    /// A program of this machine, run as it is.
    Command {
        /// Its name; a template if it is made at run time.
        program: String,
    },
    /// A sandbox that runs code of a language.
    Sandbox {
        /// The language, as in `python3`.
        language: String,
    },
    /// The network.
    Network,
    /// A person who answers.
    Person,
}

impl fmt::Display for Need {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kind { kind } => write!(f, "the node kind {kind:?}"),
            Self::Model { provider, model } => write!(f, "the model {model:?} of {provider:?}"),
            Self::Tool { provider, tool } => write!(f, "the tool {tool:?} of {provider:?}"),
            Self::McpServer { server, .. } => write!(f, "the MCP server {server:?}"),
            Self::Knowledge { dataset } => write!(f, "the knowledge base {dataset:?}"),
            Self::Command { program } => write!(f, "the program {program:?}"),
            Self::Sandbox { language } => write!(f, "a sandbox for {language}"),
            Self::Network => f.write_str("the network"),
            Self::Person => f.write_str("a person who answers"),
        }
    }
}

/// A need of a node of the document.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NodeNeed {
    /// The node's id.
    pub node: String,
    /// What it needs.
    #[serde(flatten)]
    pub need: Need,
}

/// What nodes may use of wherever they run, by type: an HTTP client, model providers, a sandbox.
///
/// The caller that adds a service also says which needs it meets. Where no caller says so, `Kind`, `Model`,
/// `Tool`, `McpServer` and `Knowledge` are not met; the others are.
#[derive(Clone, Default)]
pub struct Services {
    parts: HashMap<TypeId, Arc<dyn Any + Send + Sync>>,
    offers: Vec<Arc<Offer>>,
}

type Offer = dyn Fn(&Need) -> Option<bool> + Send + Sync;

impl Services {
    /// Adds a service, in the place of one of the same type.
    #[must_use]
    pub fn with<T: Any + Send + Sync>(mut self, service: T) -> Self {
        self.parts.insert(TypeId::of::<T>(), Arc::new(service));
        self
    }

    /// The service of a type.
    pub fn get<T: Any + Send + Sync>(&self) -> Option<&T> {
        self.parts.get(&TypeId::of::<T>())?.downcast_ref()
    }

    /// Adds a function that knows of some needs whether they are met. Of the others it says nothing.
    #[must_use]
    pub fn offering(mut self, offer: impl Fn(&Need) -> Option<bool> + Send + Sync + 'static) -> Self {
        self.offers.push(Arc::new(offer));
        self
    }

    /// Whether a need is met; the newest word counts.
    pub fn meet(&self, need: &Need) -> bool {
        let by_default = || matches!(need, Need::Command { .. } | Need::Sandbox { .. } | Need::Network | Need::Person);
        self.offers.iter().rev().find_map(|offer| offer(need)).unwrap_or_else(by_default)
    }
}

impl fmt::Debug for Services {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Services").field("parts", &self.parts.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn services_are_found_by_their_type_and_the_newest_word_on_a_need_counts() {
        let services = Services::default().with(7_u32).with(8_u32);
        assert_eq!(services.get::<u32>(), Some(&8));
        assert_eq!(services.get::<u64>(), None);
        let model = |provider: &str| Need::Model { provider: provider.to_owned(), model: "m".to_owned() };
        assert!(!services.meet(&model("a")) && services.meet(&Need::Network));
        let services = services
            .offering(|need| matches!(need, Need::Model { .. }).then_some(true))
            .offering(|need| matches!(need, Need::Model { provider, .. } if provider == "b").then_some(false));
        assert!(services.meet(&model("a")) && !services.meet(&model("b")));
    }
}
