//! What a run is begun with, as far as its document uses it (V3), and what changed when it goes on (V4).
//!
//! A fingerprint is made of canonical values: it is the same in every process, on every machine, and however the same
//! document is written. It has names and hashes, never contents of credentials: a key that changed behind the same
//! name isn't seen. Of tools it has the server's name and how the document describes it; a server doesn't say its
//! version before it is reached.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use piton_log::state;
use piton_store::Hashing;
use piton_types::{Value, from_value, to_value};
use serde::{Deserialize, Serialize};

use crate::document::{Document, Edge, NodeSpec, VariableSpec};
use crate::engine::Limits;
use crate::need::{Need, NodeNeed, Services};
use crate::outside::{Outside, SecurityLevel};

/// What is said of a node to people and changes nothing.
const NOTES: [&str; 5] = ["title", "desc", "selected", "height", "width"];

/// What a run is begun with.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ContextFingerprint {
    /// The version of this engine.
    pub engine_version: String,
    /// How strict the outside is held. Without a level, the program that embeds the engine guards the outside itself.
    pub security_level: Option<SecurityLevel>,
    /// The models that the document uses and that are offered, as `provider/model`.
    pub llm_providers: BTreeSet<String>,
    /// The tools that it uses and that are offered, with the hash of how it describes them.
    pub tools: BTreeMap<String, String>,
    /// The kinds of its nodes.
    pub node_types: BTreeSet<String>,
    /// What it may reach, if it reaches for anything.
    pub network_policy_hash: Option<String>,
    /// The document.
    pub schema_hash: String,
    /// The credential groups that it names and that exist.
    pub credential_groups: BTreeSet<String>,
    /// How much it may use.
    pub engine_config_hash: String,
    /// Each of its nodes with the edges that lead to it, for a caller that asks which of them changed.
    pub nodes: BTreeMap<String, String>,
}

impl ContextFingerprint {
    /// The fingerprint of a document that would run with these services, within these limits.
    pub fn capture(document: &Document, needs: &[NodeNeed], services: &Services, limits: &Limits) -> Self {
        let outside = services.get::<Outside>();
        let mut found = Self {
            engine_version: env!("CARGO_PKG_VERSION").to_owned(),
            security_level: outside.map(Outside::level),
            schema_hash: schema_hash(document),
            engine_config_hash: hash(&Value::map([
                ("quotas", outside.map(Outside::limits_value).unwrap_or_default()),
                ("limits", limits_value(limits)),
            ])),
            ..Self::default()
        };
        for need in needs.iter().map(|need| &need.need).filter(|need| services.meet(need)) {
            match need {
                Need::Model { provider, model } => {
                    found.llm_providers.insert(format!("{provider}/{model}"));
                }
                Need::McpServer { server, .. } => {
                    let described = document.mcp_servers.field(server).cloned().unwrap_or_default();
                    found.tools.insert(server.clone(), hash(&described));
                }
                Need::Tool { provider, tool } => {
                    found.tools.insert(format!("{provider}/{tool}"), String::new());
                }
                Need::Network => found.network_policy_hash = outside.map(|outside| hash(&outside.network_value())),
                _ => {}
            }
        }
        let mut groups = BTreeSet::new();
        kinds_and_groups(document, &mut found.node_types, &mut groups);
        groups.retain(|group| outside.is_some_and(|outside| outside.has_credential(group)));
        found.credential_groups = groups;
        for node in &document.nodes {
            let mut leading: Vec<String> =
                document.edges.iter().filter(|edge| edge.target == node.id.as_str()).map(edge_text).collect();
            leading.sort();
            let leading = Value::List(leading.into_iter().map(Value::from).collect());
            found.nodes.insert(node.id.to_string(), hash(&Value::map([("node", node_value(node)), ("from", leading)])));
        }
        found
    }

    pub(crate) fn read(value: Value) -> Option<Self> {
        if value.is_null() { None } else { from_value(value).ok() }
    }

    pub(crate) fn value(&self) -> Value {
        to_value(self).unwrap_or_default()
    }
}

/// The name of a canonical value: the same wherever it is computed.
fn hash(value: &Value) -> String {
    // Only values that are too deep can't be encoded, and no document is.
    state::encode(&Hashing::PLAIN, value).map(|encoded| encoded.root.to_string()).unwrap_or_default()
}

/// The name of a document, however it is written.
pub(crate) fn schema_hash(document: &Document) -> String {
    hash(&document_value(document))
}

fn limits_value(limits: &Limits) -> Value {
    let Limits { max_steps, max_time, node_time, concurrency, strict_templates } = limits;
    let millis = |time: &Option<std::time::Duration>| time.map(|time| time.as_millis().to_string());
    let or_null = |text: Option<String>| text.map_or(Value::Null, Value::from);
    Value::map([
        ("max_steps", or_null(max_steps.map(|most| most.to_string()))),
        ("max_time_ms", or_null(millis(max_time))),
        ("node_time_ms", or_null(millis(node_time))),
        ("concurrency", concurrency.to_string().into()),
        ("strict_templates", (*strict_templates).into()),
    ])
}

fn document_value(document: &Document) -> Value {
    let mut edges: Vec<String> = document.edges.iter().map(edge_text).collect();
    edges.sort();
    let nodes = document.nodes.iter().map(|node| (node.id.to_string(), node_value(node)));
    let handler = document.error_handler.as_ref().map_or(Value::Null, |handler| {
        Value::map([("recovers", handler.recovers.into()), ("graph", document_value(&handler.graph))])
    });
    // A document without checks has the name that it had before there were any.
    let verify = document.verify.as_deref().map(|verify| ("verify", document_value(verify)));
    let all = [
        ("nodes", Value::map(nodes)),
        ("edges", Value::List(edges.into_iter().map(Value::from).collect())),
        ("environment", variables(&document.environment)),
        ("conversation", variables(&document.conversation)),
        ("error_handler", handler),
        ("mcp_servers", document.mcp_servers.clone()),
        ("start", document.start.as_deref().map_or(Value::Null, Value::from)),
    ];
    Value::map(all.into_iter().chain(verify))
}

fn node_value(node: &NodeSpec) -> Value {
    let mut data = node.data.as_map().cloned().unwrap_or_default();
    data.retain(|name, value| !NOTES.contains(&name.as_str()) && !value.is_null());
    let inside = node.inside.as_deref().map_or(Value::Null, document_value);
    Value::map([("type", node.kind.as_str().into()), ("data", Value::Map(data)), ("inside", inside)])
}

fn edge_text(edge: &Edge) -> String {
    format!("{} [{}] {}", edge.source, edge.source_handle.as_deref().unwrap_or_default(), edge.target)
}

/// What is secret is no part of a fingerprint.
fn variables(variables: &[VariableSpec]) -> Value {
    let value = |variable: &VariableSpec| if variable.kind == "secret" { Value::Null } else { variable.value.clone() };
    Value::map(variables.iter().map(|variable| {
        (variable.name.as_str(), Value::map([("type", variable.kind.as_str().into()), ("value", value(variable))]))
    }))
}

fn kinds_and_groups(document: &Document, kinds: &mut BTreeSet<String>, groups: &mut BTreeSet<String>) {
    for node in &document.nodes {
        kinds.insert(node.kind.clone());
        let group = node.data.field("authorization").and_then(|found| found.field("group")).and_then(Value::as_str);
        groups.extend(group.map(str::to_owned));
        if let Some(inside) = &node.inside {
            kinds_and_groups(inside, kinds, groups);
        }
    }
    if let Some(handler) = &document.error_handler {
        kinds_and_groups(&handler.graph, kinds, groups);
    }
    if let Some(verify) = &document.verify {
        kinds_and_groups(verify, kinds, groups);
    }
}

/// How much a change matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ChangeSeverity {
    /// Worth knowing.
    Info,
    /// The run goes on, and says so.
    Warning,
    /// The run doesn't go on unless it is forced to.
    Danger,
}

/// Something that is different from when the run was begun.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EnvironmentChange {
    /// What, as in `security_level`.
    pub component: String,
    /// From what to what.
    pub description: String,
    /// How much it matters.
    pub severity: ChangeSeverity,
}

/// Everything that is different.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ResumeDiagnostic {
    /// The changes, the gravest first.
    pub changes: Vec<EnvironmentChange>,
}

impl ResumeDiagnostic {
    /// Adds a change, among those that matter as much.
    pub(crate) fn add(&mut self, component: &str, severity: ChangeSeverity, description: String) {
        self.changes.push(EnvironmentChange { component: component.to_owned(), description, severity });
        self.changes.sort_by_key(|change| std::cmp::Reverse(change.severity));
    }

    /// Whether the run shouldn't go on.
    pub fn has_danger(&self) -> bool {
        self.changes.iter().any(|change| change.severity == ChangeSeverity::Danger)
    }

    /// Whether there is something to warn of: a warning, or a danger.
    pub fn has_warnings(&self) -> bool {
        self.changes.iter().any(|change| change.severity >= ChangeSeverity::Warning)
    }

    /// One line for each change.
    pub fn report(&self) -> String {
        let line =
            |change: &EnvironmentChange| format!("{}: {}: {}", change.severity, change.component, change.description);
        self.changes.iter().map(line).collect::<Vec<_>>().join("\n")
    }
}

impl fmt::Display for ChangeSeverity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Info => "info",
            Self::Warning => "warning",
            Self::Danger => "danger",
        })
    }
}

/// What differs between the fingerprint that a run was begun with and that of now. A run of before there were
/// fingerprints has none.
pub fn diff_fingerprints(before: Option<&ContextFingerprint>, now: &ContextFingerprint) -> ResumeDiagnostic {
    use ChangeSeverity::{Danger, Info, Warning};
    let mut diagnostic = ResumeDiagnostic::default();
    let mut add = |component: &str, severity, description: String| diagnostic.add(component, severity, description);
    let Some(before) = before else {
        add("fingerprint", Warning, "the run has none, so it is not known what changed".to_owned());
        return diagnostic;
    };
    if before.schema_hash != now.schema_hash {
        let changed = changed_nodes(before, now);
        let names = if changed.is_empty() { String::new() } else { format!(": {}", changed.join(", ")) };
        add("schema", Danger, format!("the document is another one{names}"));
    }
    let level = |level: Option<SecurityLevel>| level.map_or_else(|| "off".to_owned(), |level| level.to_string());
    // The strictest comes first; without any, nothing is held.
    let looseness = |level: Option<SecurityLevel>| level.map_or(u8::MAX, |level| level as u8);
    if before.security_level != now.security_level {
        let (was, is) = (before.security_level, now.security_level);
        let severity = if looseness(is) > looseness(was) { Danger } else { Info };
        add("security_level", severity, format!("{} → {}", level(was), level(is)));
    }
    let gone =
        |was: &BTreeSet<String>, is: &BTreeSet<String>| was.difference(is).cloned().collect::<Vec<_>>().join(", ");
    for (component, severity, was, is) in [
        ("node_types", Danger, &before.node_types, &now.node_types),
        ("llm_providers", Warning, &before.llm_providers, &now.llm_providers),
        ("credentials", Warning, &before.credential_groups, &now.credential_groups),
    ] {
        let gone = gone(was, is);
        if !gone.is_empty() {
            add(component, severity, format!("gone: {gone}"));
        }
    }
    let mut tools: Vec<_> = before
        .tools
        .iter()
        .filter(|(name, was)| now.tools.get(*name) != Some(was))
        .map(|(name, _)| name.clone())
        .collect();
    tools.sort();
    if !tools.is_empty() {
        add("tools", Warning, format!("gone or described otherwise: {}", tools.join(", ")));
    }
    if before.network_policy_hash != now.network_policy_hash {
        add("network_policy", Warning, "what may be reached is different".to_owned());
    }
    if before.engine_config_hash != now.engine_config_hash {
        add("engine_config", Info, "the limits are different".to_owned());
    }
    if before.engine_version != now.engine_version {
        add("engine_version", Info, format!("{} → {}", before.engine_version, now.engine_version));
    }
    diagnostic
}

/// Nodes that are new, gone or different, or that other edges lead to.
pub(crate) fn changed_nodes(before: &ContextFingerprint, now: &ContextFingerprint) -> Vec<String> {
    let names: BTreeSet<_> = before.nodes.keys().chain(now.nodes.keys()).collect();
    names.into_iter().filter(|name| before.nodes.get(*name) != now.nodes.get(*name)).cloned().collect()
}

/// What a changed document means for what a run has done.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Impact {
    /// Nodes that changed.
    pub changed: Vec<String>,
    /// These and all that they lead to.
    pub affected: Vec<String>,
    /// Finished nodes whose results are as good as before.
    pub valid: Vec<String>,
    /// Finished nodes that would come to something else now.
    pub outdated: Vec<String>,
    /// Nodes that were to come, or had begun, and that the document no longer has: with any, no run goes on with it.
    pub lost: Vec<String>,
}

impl Impact {
    /// What it means for a run that has finished these nodes to go on with `document`, which lacks `lost` of those that
    /// were to come.
    pub(crate) fn of<'a>(
        before: &ContextFingerprint,
        now: &ContextFingerprint,
        document: &Document,
        finished: impl IntoIterator<Item = &'a str>,
        lost: BTreeSet<String>,
    ) -> Self {
        let finished: BTreeSet<&str> = finished.into_iter().collect();
        let changed = changed_nodes(before, now);
        let mut affected: BTreeSet<&str> = changed.iter().map(String::as_str).collect();
        let mut way: Vec<&str> = affected.iter().copied().collect();
        while let Some(node) = way.pop() {
            for edge in document.edges.iter().filter(|edge| edge.source == node) {
                if affected.insert(&edge.target) {
                    way.push(&edge.target);
                }
            }
        }
        let owned = |names: Vec<&str>| names.into_iter().map(str::to_owned).collect();
        Self {
            valid: owned(finished.iter().copied().filter(|node| !affected.contains(node)).collect()),
            outdated: owned(finished.iter().copied().filter(|node| affected.contains(node)).collect()),
            lost: lost.into_iter().collect(),
            affected: owned(affected.into_iter().collect()),
            changed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::Format;
    use crate::kind::Kinds;
    use crate::outside::OutsideConfig;

    const YAML: &str = "
nodes:
  - {id: s, data: {type: start, title: Begin}}
  - {id: t, data: {type: template-transform, template: 'a', variables: []}}
  - {id: e, data: {type: end, outputs: [{variable: x, value_selector: [t, output]}]}}
edges: [{source: s, target: t}, {source: t, target: e}]
";

    fn capture(text: &str, format: Format, level: SecurityLevel) -> (ContextFingerprint, Document) {
        let document = Document::parse(text, format).unwrap();
        let flow = crate::Flow::build(&document, &Kinds::builtin()).unwrap();
        let services = Outside::new(OutsideConfig::at(level)).unwrap().install(Services::default());
        (ContextFingerprint::capture(&document, flow.needs(), &services, &Limits::default()), document)
    }

    /// The golden value: a fingerprint that an earlier version stored must still be found equal.
    #[test]
    fn the_fingerprint_is_pinned() {
        let (found, _) = capture(YAML, Format::Yaml, SecurityLevel::Standard);
        assert_eq!(found.schema_hash, GOLDEN);
        // Everything else of it but the version of this engine.
        let whole = ContextFingerprint { engine_version: String::new(), ..found };
        assert_eq!(hash(&whole.value()), GOLDEN_WHOLE);
    }

    const GOLDEN_WHOLE: &str = "ffc488a03c736cc3b59bf0dc48ae97d100a28aa06bc570a4867c4cb417164297";

    const GOLDEN: &str = "86fffb51f88e4eadb04ce979f5091a7443b03a9ef81e99cbde0656649f127840";

    #[test]
    fn how_a_document_is_written_makes_no_difference() {
        let (yaml, _) = capture(YAML, Format::Yaml, SecurityLevel::Standard);
        let json = r#"{"edges": [{"target": "e", "source": "t"}, {"source": "s", "target": "t"}], "nodes": [
            {"id": "e", "data": {"outputs": [{"value_selector": ["t", "output"], "variable": "x"}], "type": "end"}},
            {"data": {"title": "Start here", "type": "start"}, "id": "s"},
            {"id": "t", "data": {"variables": [], "template": "a", "type": "template-transform"}}]}"#;
        let (json, _) = capture(json, Format::Json, SecurityLevel::Standard);
        assert_eq!(yaml, json);
        assert_eq!(diff_fingerprints(Some(&yaml), &json).report(), "");
    }

    /// V4, row by row.
    #[test]
    fn every_change_has_its_severity() {
        let (standard, _) = capture(YAML, Format::Yaml, SecurityLevel::Standard);
        let said =
            |before: &ContextFingerprint, now: &ContextFingerprint| diff_fingerprints(Some(before), now).report();
        let level = |level| ContextFingerprint { security_level: level, ..standard.clone() };
        let (strict, permissive) = (level(Some(SecurityLevel::Strict)), level(Some(SecurityLevel::Permissive)));
        assert_eq!(said(&strict, &permissive), "danger: security_level: Strict → Permissive");
        assert_eq!(said(&strict, &level(None)), "danger: security_level: Strict → off");
        assert_eq!(said(&permissive, &strict), "info: security_level: Permissive → Strict");
        let (changed, _) = capture(&YAML.replace("'a'", "'b'"), Format::Yaml, SecurityLevel::Standard);
        assert_eq!(said(&standard, &changed), "danger: schema: the document is another one: t");
        let with = |edit: fn(&mut ContextFingerprint)| {
            let mut other = standard.clone();
            edit(&mut other);
            other
        };
        let more = with(|found| {
            found.node_types.insert("robot".to_owned());
            found.llm_providers.insert("openai/small".to_owned());
            found.credential_groups.insert("git".to_owned());
            found.tools.insert("search".to_owned(), "1".to_owned());
        });
        assert_eq!(
            said(&more, &standard),
            "danger: node_types: gone: robot\nwarning: llm_providers: gone: openai/small\nwarning: credentials: gone: git\nwarning: tools: gone or described otherwise: search"
        );
        assert_eq!(said(&standard, &more), "", "what is new harms nobody");
        let network = with(|found| found.network_policy_hash = Some("x".to_owned()));
        assert_eq!(said(&standard, &network), "warning: network_policy: what may be reached is different");
        let config = with(|found| found.engine_config_hash = "x".to_owned());
        assert_eq!(said(&standard, &config), "info: engine_config: the limits are different");
        assert!(diff_fingerprints(None, &standard).has_warnings());
        // V4: a danger is something to warn of, what is only told isn't.
        let gone = with(|found| found.node_types.clear());
        let (danger, told) = (diff_fingerprints(Some(&standard), &gone), diff_fingerprints(Some(&standard), &config));
        assert!(danger.has_danger() && danger.has_warnings() && !told.has_warnings());
    }

    #[test]
    fn a_changed_document_says_what_stays_valid() {
        let (before, _) = capture(YAML, Format::Yaml, SecurityLevel::Standard);
        let (now, document) = capture(&YAML.replace("'a'", "'b'"), Format::Yaml, SecurityLevel::Standard);
        let impact = Impact::of(&before, &now, &document, ["s", "t"], BTreeSet::new());
        assert_eq!((impact.changed, impact.affected), (vec!["t".to_owned()], vec!["e".to_owned(), "t".to_owned()]));
        assert_eq!((impact.valid, impact.outdated), (vec!["s".to_owned()], vec!["t".to_owned()]));
    }
}
