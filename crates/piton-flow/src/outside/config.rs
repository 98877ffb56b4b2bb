//! What the outside of a run is made from.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use piton_model::SecretString;
use piton_model::chat::{Model, Providers};
use piton_model::net::NetPolicy;
use piton_process::{Ended, Sandbox};
use piton_types::Random;
use serde::{Deserialize, Serialize};

use super::tools::ToolServers;
use crate::node::NodeError;

/// How strict the outside is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum SecurityLevel {
    /// For documents of others: no programs, no tool servers that the document brings along, public
    /// addresses only.
    Strict,
    /// For one's own documents: programs run as they are, public addresses only.
    #[default]
    Standard,
    /// For one's own machine: private addresses too.
    Permissive,
}

impl std::fmt::Display for SecurityLevel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Strict => "Strict",
            Self::Standard => "Standard",
            Self::Permissive => "Permissive",
        })
    }
}

/// A secret that nodes may send with a request, by the name of its group.
#[derive(Debug, Clone, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Credential {
    /// The hosts that it may be sent to. A document that names the group can send it nowhere else.
    pub hosts: Vec<String>,
    /// The header that carries it.
    #[serde(default = "authorization")]
    pub header: String,
    /// The whole value of that header, such as `Bearer …`; `env:NAME` takes it from the environment.
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub value: SecretString,
}

fn authorization() -> String {
    "Authorization".to_owned()
}

/// Where a knowledge base answers; see the node `knowledge-retrieval` for the interface.
#[derive(Debug, Clone, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Knowledge {
    /// The endpoint.
    pub url: String,
    /// Sent as a bearer token; `env:NAME` takes it from the environment.
    #[serde(default)]
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    pub api_key: Option<SecretString>,
}

/// What answers in the place of programs, where none may run: in the cases of `piton test`.
#[async_trait]
pub trait Programs: Send + Sync {
    /// What a program with these words comes to.
    async fn run(&self, words: &[String]) -> Result<Ended, NodeError>;

    /// That a program isn't run, and what to do about that.
    fn refuse(&self, program: &str) -> NodeError;
}

/// What the outside of a run is made from. [`OutsideConfig::at`] begins with what a level means.
#[non_exhaustive]
pub struct OutsideConfig {
    /// How strict it is.
    pub level: SecurityLevel,
    /// What documents may reach.
    pub network: NetPolicy,
    /// How long a model may take.
    pub model_timeout: Duration,
    /// Models, by the name of who offers them. Their addresses may be private: the user named them.
    pub providers: Providers,
    /// Models that the program brings itself, by such a name. One of these beats an endpoint of the same name.
    pub models: BTreeMap<String, Arc<dyn Model>>,
    /// Knowledge bases by dataset; `*` is for all others.
    pub knowledge: BTreeMap<String, Knowledge>,
    /// Credentials by group.
    #[cfg(feature = "security")]
    pub credentials: BTreeMap<String, Credential>,
    /// Tool servers by name, beside those that a document brings along.
    pub servers: ToolServers,
    /// How much may be used.
    #[cfg(feature = "security")]
    pub quotas: super::governor::Quotas,
    /// Where it is written down what was done.
    #[cfg(feature = "security")]
    pub audit: Option<Arc<dyn super::audit::Audit>>,
    /// What must not be shown, by name, beside keys and credentials.
    pub secrets: Vec<(String, SecretString)>,
    /// Where random numbers come from.
    pub random: Arc<dyn Random>,
    /// Answers in the place of all programs; then documents start no tool servers either.
    pub programs: Option<Arc<dyn Programs>>,
    /// What programs are shut into; without it they may do what we may.
    pub command_sandbox: Option<Sandbox>,
    /// Variables of our environment that programs don't get. In a sandbox they get none.
    pub withheld: Vec<String>,
    /// The Python that runs code.
    #[cfg(feature = "code")]
    pub python: piton_code::Python,
    /// What code may use.
    #[cfg(feature = "code")]
    pub code_limits: piton_code::CodeLimits,
    /// Where tool servers run.
    pub folder: Option<PathBuf>,
    /// The environment of tool servers: nothing else of ours is handed on.
    pub environment: BTreeMap<String, String>,
}

impl std::fmt::Debug for OutsideConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OutsideConfig").field("level", &self.level).finish_non_exhaustive()
    }
}

/// The system's random numbers.
#[derive(Debug)]
pub(super) struct SystemRandom;

impl Random for SystemRandom {
    fn fill(&self, bytes: &mut [u8]) {
        getrandom::fill(bytes).expect("a system without random numbers can't make keys either");
    }
}
