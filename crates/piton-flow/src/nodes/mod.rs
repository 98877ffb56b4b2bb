//! The kinds of nodes, one file each.
//!
//! # Adding a kind
//!
//! 1. Write `nodes/my_kind.rs` with a function `build(&Build<'_>) -> Built` and a type that implements
//!    [`Node`](crate::Node). `build` reads the data ([`Build::data`](crate::Build::data) into a struct with
//!    serde's `Deserialize`), checks everything that can be checked before a run, and returns *all* that is
//!    wrong with it as [`Faults`](crate::Faults), each with its place in the data. Templates are compiled
//!    here ([`Build::template`](crate::Build::template)), so that a broken one is refused by `piton validate`.
//! 2. [`Node::inputs`](crate::Node::inputs) computes what the node takes from the variables (a map; it is
//!    recorded with the result and shown to people: secrets don't belong in it).
//!    [`Node::run`](crate::Node::run) does the work with that and its
//!    [`NodeContext`](crate::NodeContext): services by type, streamed text, usage, ids, clock, cancellation,
//!    recorded parts. It returns [`NodeOutput`](crate::NodeOutput): variables, perhaps an exit (for branches),
//!    perhaps assignments to variables of others.
//! 3. Say what it uses: [`references`](crate::Node::references) (every selector, for the check),
//!    [`needs`](crate::Node::needs) (what must be there: models, tools, programs; reported before a run and
//!    refused if no service offers it), [`effect`](crate::Node::effect) (`Outward`, unless the outputs follow
//!    from the inputs alone), [`exits`](crate::Node::exits) if it branches.
//! 4. Add the name to `kinds` below. A program that embeds the engine adds its own with
//!    [`Kinds::with`](crate::Kinds::with) instead.
//!
//! Retries, timeouts, error strategies, events and the journal are the dispatcher's; a node has no part
//! in them. A failed node returns a [`NodeError`](crate::NodeError), `passing` if another try may help.
//!
//! A service (an HTTP client, model providers, a sandbox) is a type of your own in
//! [`Services`](crate::Services): `services.with(MyClient)`, and in the node
//! `context.services().get::<MyClient>()`. `services.offering(…)` says which needs it meets.
//!
//! Kinds that reach outside (models, tools, HTTP, code, programs) all use one service,
//! [`Outside`](crate::Outside): `Outside::new(OutsideConfig::at(level))?.install(services)` offers it. Their
//! work runs inside its guard, which counts, writes down, bounds, and keeps secrets out of errors.

mod agent;
mod answer;
mod arguments;
mod assigner;
#[cfg(feature = "code")]
mod code;
mod command;
mod container;
#[cfg(feature = "documents")]
mod document_extractor;
mod end;
mod files;
mod gather;
mod http_request;
mod human_input;
mod if_else;
mod iteration;
mod knowledge_retrieval;
mod list_operator;
mod llm;
mod loop_node;
mod marker;
mod missing;
mod model;
mod multipart;
mod parameter_extractor;
mod prompt;
mod question_classifier;
mod react;
mod reading;
mod rounds;
mod start;
mod sub_workflow;
mod template_transform;
mod tool;
mod variable_aggregator;

use crate::kind::{Build, Built, Kinds};

pub(crate) use missing::{missing, unfinished};
pub use start::file_with;
pub(crate) use start::{Kind, accept_one};

/// The kind whose outputs are the workflow's.
pub(crate) const END: &str = "end";

/// The kind that asks a person.
pub(crate) const HUMAN_INPUT: &str = "human-input";

/// The engine's own kinds.
pub(crate) fn kinds() -> Kinds {
    let kinds = Kinds::default()
        .with("start", start::build)
        .with(END, end::build)
        .with("answer", answer::build)
        .with("if-else", if_else::build)
        .with("template-transform", template_transform::build)
        .with("variable-aggregator", variable_aggregator::build)
        .with("variable-assigner", assigner_or_aggregator)
        .with("assigner", assigner::build)
        .with("list-operator", list_operator::build)
        .with("iteration", iteration::build)
        .with("iteration-start", marker::build)
        .with("loop", loop_node::build)
        .with("loop-start", marker::build)
        .with("loop-end", marker::build)
        .with("gather", gather::build)
        .with(HUMAN_INPUT, human_input::build)
        .with("sub-workflow", sub_workflow::build)
        .with("command", command::build)
        .with("http-request", http_request::build)
        .with("llm", llm::build)
        .with("agent", agent::build)
        .with("tool", tool::build)
        .with("question-classifier", question_classifier::build)
        .with("parameter-extractor", parameter_extractor::build)
        .with("knowledge-retrieval", knowledge_retrieval::build);
    #[cfg(feature = "code")]
    let kinds = kinds.with("code", code::build);
    #[cfg(feature = "documents")]
    let kinds = kinds.with("document-extractor", document_extractor::build);
    kinds
}

/// `variable-assigner` was once the name of the aggregator.
fn assigner_or_aggregator(build: &Build<'_>) -> Built {
    if build.spec.data.field("variables").is_some() || build.spec.data.field("advanced_settings").is_some() {
        variable_aggregator::build(build)
    } else {
        assigner::build(build)
    }
}
