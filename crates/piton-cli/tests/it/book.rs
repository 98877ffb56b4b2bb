//! The reference part of the book is what the code says, and every test and link that a page names exists.
//!
//! `scripts/reference` writes the pages anew; without that, these tests compare.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::story;
use crate::world::World;

/// The folder of the repository.
pub(crate) fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// Pages that people write: the README and the book, without the reference.
pub(crate) fn pages() -> Vec<(String, String)> {
    let mut found = Vec::new();
    for name in ["README.md", "ARCHITECTURE.md", "CHANGELOG.md", "examples/README.md", "bench/README.md"] {
        found.push(name.to_owned());
    }
    for entry in std::fs::read_dir(repository().join("docs")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if name.ends_with(".md") {
            found.push(format!("docs/{name}"));
        }
    }
    found.sort();
    found
        .into_iter()
        .map(|name| {
            let text =
                std::fs::read_to_string(repository().join(&name)).unwrap_or_else(|error| panic!("{name}: {error}"));
            (name, text)
        })
        .collect()
}

/// That a page of the reference says what the code says now, or makes it so.
fn holds(name: &str, text: &str) {
    let path = repository().join("docs/reference").join(name);
    let text = format!("{}\n", text.trim_end());
    if std::env::var_os("PITON_WRITE_REFERENCE").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        return;
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    let differs = kept.lines().zip(text.lines()).position(|(kept, now)| kept != now);
    let line = differs.unwrap_or_else(|| kept.lines().count().min(text.lines().count()));
    let shown = |text: &str| text.lines().skip(line).take(3).collect::<Vec<_>>().join("\n");
    assert!(
        kept == text,
        "docs/reference/{name} is out of date from line {}: run scripts/reference\nkept:\n{}\nnow:\n{}",
        line + 1,
        shown(&kept),
        shown(&text)
    );
}

#[test]
fn the_reference_of_commands_is_what_their_help_says() {
    let said = World::new().piton(["reference", "commands"]);
    assert_eq!(said.code, Some(0), "{}", said.stderr);
    holds("commands.md", &said.stdout);
}

#[test]
fn the_reference_and_schema_of_the_configuration_are_what_is_parsed() {
    let world = World::new();
    holds("configuration.md", &world.piton(["reference", "configuration"]).stdout);
    let schema = world.piton(["reference", "schema"]).stdout;
    let parsed: serde_json::Value = serde_json::from_str(&schema).unwrap();
    assert_eq!(parsed["additionalProperties"], false);
    holds("piton.schema.json", &schema);
}

#[test]
fn the_reference_of_nodes_is_what_their_modules_say() {
    holds("nodes.md", &nodes());
}

/// Each verb's text and JSON, in one story.
#[test]
fn what_every_verb_says_is_what_the_reference_shows() {
    holds("output.md", &story::told());
}

/// Each verb's help, text and JSON is held by a page, and a verb that is added without them is noticed.
#[test]
fn every_verb_has_its_help_its_text_and_its_json() {
    let help = World::new().piton(["--help"]).stdout;
    let (_, groups) = help.split_once("Files:\n").unwrap();
    let (groups, _) = groups.split_once("\nOptions:").unwrap();
    let verbs = groups.lines().filter_map(|line| line.strip_prefix("  ")?.split_whitespace().next());
    let page = |name: &str| std::fs::read_to_string(repository().join("docs/reference").join(name)).unwrap();
    let (commands, output) = (page("commands.md"), page("output.md"));
    let mut count = 0;
    for verb in verbs {
        count += 1;
        assert!(commands.contains(&format!("### piton {verb}\n")), "commands.md lacks {verb}");
        // What the first two find differs from machine to machine: `first_use.rs` holds them. A server says where it is,
        // `place.rs` holds `store`, and `mcp.rs` what agents are told.
        if ["doctor", "demo", "serve", "store", "mcp"].contains(&verb) {
            continue;
        }
        let section = output.split("\n## ").find(|section| section.lines().next() == Some(verb));
        let section = section.unwrap_or_else(|| panic!("output.md lacks {verb}"));
        // What these write to stdout is no text of ours.
        let has_json = !["export", "completions"].contains(&verb);
        assert_eq!((section.contains("```text"), section.contains("```json")), (true, has_json), "{verb}");
    }
    assert!(count > 30, "{count} verbs: is that the help?");
}

/// Every kind of node by the first paragraph of its module, an example that is valid, and the fields that it reads.
fn nodes() -> String {
    let folder = repository().join("crates/piton-flow/src/nodes");
    let mut text =
        "# Nodes\n\nEvery kind of node: what it does, what it gives, an example, and the fields that it reads from \
        `data`. Fields without a default must be said. Beside these any node may have `title`, `error_strategy`, \
        `retry_config`, `timeout_secs`, `checkpoint` and `on_uncertain`; `docs/workflows.md` explains them.\n"
            .to_owned();
    let kinds = piton_flow::Kinds::builtin();
    for kind in kinds.names() {
        let module = match kind {
            "loop" => "loop_node".to_owned(),
            "iteration-start" | "loop-start" | "loop-end" => "marker".to_owned(),
            "variable-assigner" => "assigner".to_owned(),
            _ => kind.replace('-', "_"),
        };
        let source = std::fs::read_to_string(folder.join(format!("{module}.rs")))
            .unwrap_or_else(|error| panic!("{kind} has no module of its own: {error}"));
        let about: Vec<&str> = source.lines().map_while(|line| line.strip_prefix("//!")).map(str::trim).collect();
        text.push_str(&format!("\n## {kind}\n\n{}\n", about.join("\n").trim()));
        text.push_str(&format!("\n```yaml\n{}\n```\n", example(kind)));
        // Read by name, and so in no struct of the node's own.
        let prompt = std::fs::read_to_string(folder.join("prompt.rs")).unwrap();
        let mut named: Vec<(&str, &str, &str)> = Vec::new();
        if source.contains("Prompt::read(") {
            named.extend([
                ("prompt_template", "MessageData", "The messages; one text or one message will do."),
                ("prompt_config", "PromptConfig", "What Jinja templates in them may use."),
                ("context", "Switch", "What was found elsewhere and belongs to the question."),
                ("vision", "VisionData", "Pictures that the model is shown."),
            ]);
        }
        if source.contains("Prompt::read(") || source.contains("Memory::read(") {
            named.push(("memory", "MemoryData", "Earlier messages."));
        }
        let mut rows = String::new();
        let mut below = Vec::new();
        for (name, kind, about) in named {
            rows.push_str(&format!(
                "| `{name}` | [below](#{module}-{name}) | {about} |\n",
                module = kind_anchor(&module)
            ));
            below.push((name.to_owned(), kind.to_owned(), prompt.clone()));
        }
        for data in ["Data", "End"] {
            let (found, inside) = fields(&source, data, &module);
            rows.push_str(&found);
            below.extend(inside.into_iter().map(|(name, kind)| (name, kind, source.clone())));
        }
        if !rows.is_empty() {
            text.push_str(&format!("\n| field | type | |\n|---|---|---|\n{rows}"));
        }
        // What is inside fields, until nothing is left. A struct may have itself inside.
        let mut told = BTreeSet::new();
        while let Some((name, kind, source)) = (!below.is_empty()).then(|| below.remove(0)) {
            if !told.insert(kind.clone()) {
                continue;
            }
            let shared = |file: &str| std::fs::read_to_string(folder.join(file)).unwrap();
            let source = match kind.as_str() {
                "ConditionData" | "SubConditions" => shared("../condition.rs"),
                "ModelData" => shared("model.rs"),
                _ => source,
            };
            let (rows, inside) = fields(&source, &kind, &module);
            assert!(!rows.is_empty(), "{module}: there is no {kind}");
            let anchor = format!("{}-{name}", kind_anchor(&module));
            text.push_str(&format!(
                "\n### <a id=\"{anchor}\"></a>`{name}`\n\n| field | type | |\n|---|---|---|\n{rows}"
            ));
            below.extend(inside.into_iter().map(|(name, kind)| (name, kind, source.clone())));
        }
    }
    text
}

fn kind_anchor(module: &str) -> String {
    module.replace('_', "-")
}

/// An example of each kind, as it stands in a document. It is read and checked before it is shown, so it can't be wrong.
fn example(kind: &str) -> String {
    const MODEL: &str = "model: {provider: openai, name: gpt-4o}";
    let data = match kind {
        "start" => "variables: [{variable: topic, type: string, required: true}]".to_owned(),
        "end" => "outputs: [{variable: text, value_selector: [in, topic]}]".to_owned(),
        "answer" => "answer: 'You asked about {{#in.topic#}}.'".to_owned(),
        "agent" => format!(
            "{MODEL}\nsystem_prompt: Read before you answer.\nquery: '{{{{#in.topic#}}}}'\n\
             tools:\n  builtin: [fetch]\n  mcp_servers: [{{command: my-tools, args: [--stdio]}}]\nmax_iterations: 20"
        ),
        "assigner" | "variable-assigner" => {
            "assigned_variable_selector: [conversation, topics]\nwrite_mode: append\ninput_variable_selector: [in, topic]"
                .to_owned()
        }
        "code" => "language: javascript\ncode: 'function main({topic}) { return {length: topic.length} }'\n\
                   variables: [{variable: topic, value_selector: [in, topic]}]\noutputs: {length: {type: number}}"
            .to_owned(),
        "command" => "command: [grep, -c, '{{#in.topic#}}', notes.txt]\nallow_failure: true".to_owned(),
        "document-extractor" => "variable_selector: [in, topic]".to_owned(),
        "gather" => "variables: [[in, topic]]\njoin_mode: any\ntimeout_secs: 30".to_owned(),
        "http-request" => "method: GET\nurl: 'https://example.com/{{#in.topic#}}'\n\
                           authorization: {type: bearer, token: '{{#env.TOKEN#}}'}"
            .to_owned(),
        "human-input" => "prompt: 'Publish {{#in.topic#}}?'\nresume_mode: form\n\
                          variables: [{variable: when, type: string, required: true}]"
            .to_owned(),
        "if-else" => "cases:\n  - case_id: long\n    conditions: [{variable_selector: [in, topic], comparison_operator: \
                      contains, value: bees}]"
            .to_owned(),
        "knowledge-retrieval" => {
            "query_variable_selector: [in, topic]\ndataset_ids: [handbook]\nmultiple_retrieval_config: {top_k: 4}".to_owned()
        }
        "list-operator" => "input_selector: [in, topic]\noperation: unique".to_owned(),
        "llm" => format!(
            "{MODEL}\nprompt_template:\n  - {{role: system, text: Be brief.}}\n  - {{role: user, text: 'What of \
             {{{{#in.topic#}}}}?'}}"
        ),
        "parameter-extractor" => {
            format!("{MODEL}\nquery: [in, topic]\nparameters: [{{name: city, type: string, required: true}}]")
        }
        "question-classifier" => format!(
            "{MODEL}\nquery_variable_selector: [in, topic]\nclasses: [{{id: bees, name: About bees}}, {{id: other, name: \
             Anything else}}]"
        ),
        "template-transform" => {
            "template: 'About {{ topic }}'\nvariables: [{variable: topic, value_selector: [in, topic]}]".to_owned()
        }
        "tool" => "tool_name: fetch\nprovider_name: builtin\narguments: {url: 'https://example.com/{{#in.topic#}}'}".to_owned(),
        "variable-aggregator" => "variables: [[in, topic]]".to_owned(),
        // What has nodes of its own inside is shown by a whole document below.
        "iteration" => "input_selector: [in, topic]\noutput_selector: [ask, output]\nparallel: true".to_owned(),
        "loop" => "max_iterations: 3\ninitial_vars: {tries: 0}".to_owned(),
        "sub-workflow" => {
            "file: greet.yml\nvariables: [{variable: who, value_selector: [in, topic]}]".to_owned()
        }
        "iteration-start" | "loop-start" | "loop-end" => String::new(),
        other => panic!("there is no example of {other}"),
    };
    let mut lines = vec![format!("- id: {}", if kind == "start" { "in" } else { "node" }), "  data:".to_owned()];
    lines.push(format!("    type: {kind}"));
    lines.extend(data.lines().map(|line| format!("    {line}")));
    let example = lines.join("\n");
    check(kind, &example);
    example
}

/// Asserts that an example is valid in a document around it.
fn check(kind: &str, example: &str) {
    // These stand inside a container, or have nodes or a file of their own inside.
    let containers = ["iteration", "loop", "sub-workflow", "iteration-start", "loop-start", "loop-end"];
    if containers.contains(&kind) {
        return;
    }
    let start = "- {id: in, data: {type: start, variables: [{variable: topic}]}}\n";
    let end = "- {id: out, data: {type: end}}\n";
    let (nodes, edges) = match kind {
        "start" => (format!("{example}\n{end}"), "[{source: in, target: out}]".to_owned()),
        "end" => (format!("{start}{example}\n"), "[{source: in, target: node}]".to_owned()),
        _ => {
            let exits = match kind {
                "if-else" => vec!["long", "false"],
                "question-classifier" => vec!["bees", "other"],
                _ => vec!["source"],
            };
            let edges = exits.iter().map(|exit| format!(", {{source: node, sourceHandle: {exit}, target: out}}"));
            (format!("{start}{example}\n{end}"), format!("[{{source: in, target: node}}{}]", edges.collect::<String>()))
        }
    };
    let document = format!(
        "conversation_variables: [{{name: topics, value_type: 'array[string]', value: []}}]\n\
         environment_variables: [{{name: TOKEN, value: x}}]\nnodes:\n{nodes}edges: {edges}\n"
    );
    let parsed = piton_flow::Document::parse(&document, piton_flow::Format::Yaml);
    let checked = parsed.and_then(|document| document.validate());
    assert!(checked.is_ok(), "{kind}: {:?}\n{document}", checked.err());
}

/// The fields of a struct of a module as rows, and those that have structs of their own inside. A field that no comment
/// explains fails the test: the reference is made of them.
fn fields(source: &str, data: &str, module: &str) -> (String, Vec<(String, String)>) {
    let (mut rows, mut inside) = (String::new(), Vec::new());
    let Some((_, rest)) = source.split_once(&format!("struct {data} {{\n")) else { return (rows, inside) };
    let (body, _) = rest.split_once("\n}").unwrap();
    let (mut about_line, mut alias, mut optional) = (Vec::new(), None, false);
    for line in body.lines().map(str::trim) {
        if let Some(comment) = line.strip_prefix("///") {
            about_line.push(comment.trim().to_owned());
        } else if let Some(attribute) = line.strip_prefix("#[serde(") {
            optional |= attribute.contains("default") || attribute.contains("flatten");
            alias = attribute.split_once("alias = \"").and_then(|(_, rest)| rest.split('"').next()).map(str::to_owned);
            if let Some((_, name)) = attribute.split_once("rename = \"") {
                alias = name.split('"').next().map(str::to_owned);
            }
        } else if let Some((name, kind)) = line.trim_end_matches(',').split_once(": ") {
            let name = name.rsplit(' ').next().unwrap();
            let kind = kind.strip_prefix("Option<").map_or(kind, |inner| {
                optional = true;
                inner.strip_suffix('>').unwrap()
            });
            // A field that Rust has no name for goes by the one that documents have.
            let (name, also) = match alias.take() {
                Some(alias) if name == "kind" => (alias, String::new()),
                Some(alias) => (name.to_owned(), format!(", also `{alias}`")),
                None => (name.to_owned(), String::new()),
            };
            let may = if optional { "" } else { "**must be said**" };
            let about = about_line.join(" ");
            assert!(!about.is_empty(), "{module}.rs, {data}: no comment says what {name} means");
            let note =
                [may, about.as_str()].iter().filter(|part| !part.is_empty()).copied().collect::<Vec<_>>().join(". ");
            let core = kind.rsplit(['<', ' ']).next().unwrap().trim_end_matches('>');
            let own = match core {
                "ConditionData" | "SubConditions" => Some(core),
                "ModelSpec" => Some("ModelData"),
                _ => Some(core).filter(|core| source.contains(&format!("struct {core} {{\n"))),
            };
            let mut word = word(kind).to_owned();
            if let Some(own) = own {
                word = format!(
                    "[{}](#{}-{name})",
                    if kind.starts_with("Vec<") { "list of" } else { "below" },
                    kind_anchor(module)
                );
                inside.push((name.clone(), own.to_owned()));
            }
            rows.push_str(&format!("| `{name}`{also} | {word} | {} |\n", note.replace('|', "\\|")));
            about_line.clear();
            optional = false;
        }
    }
    (rows, inside)
}

/// What people call a type.
fn word(kind: &str) -> &str {
    match kind {
        "String" => "text",
        "bool" => "true or false",
        "usize" | "u64" | "i64" | "f64" => "number",
        "Selector" => "selector, as `[NODE, NAME]`",
        "Vec<Selector>" => "list of selectors",
        "Vec<String>" => "list of texts",
        "Value" | "Vec<Value>" => "any",
        "ModelSpec" => "model: `{provider, name, completion_params}`",
        _ if kind.starts_with("Vec<") => "list",
        _ if kind.starts_with("BTreeMap<") || kind == "Inputs" => "values by name",
        "Order" | "Junction" | "Mode" | "OnTimeout" | "Late" | "OnFailure" | "Position" => "a word",
        _ => "any",
    }
}

/// Every environment variable that the program reads is in the page for operators.
#[test]
fn every_environment_variable_is_documented() {
    let mut named = BTreeSet::new();
    let mut folders = vec![repository().join("crates/piton-cli/src"), repository().join("crates/piton-flow/src")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let source = std::fs::read_to_string(&path).unwrap();
            for part in source.split("\"PITON_").skip(1) {
                let name: String = part.chars().take_while(|c| c.is_ascii_uppercase() || *c == '_').collect();
                named.insert(format!("PITON_{}", name.trim_end_matches('_')));
            }
        }
    }
    assert!(named.len() > 5, "{named:?}");
    let page = std::fs::read_to_string(repository().join("docs/operators.md")).unwrap();
    for name in named {
        assert!(page.contains(&format!("`{name}`")), "docs/operators.md doesn't say what {name} does");
    }
}

/// Links of pages lead somewhere.
#[test]
fn every_link_of_the_book_leads_somewhere() {
    let mut count = 0;
    for (name, text) in pages() {
        let folder = repository().join(&name);
        let folder = folder.parent().unwrap();
        for part in text.split("](").skip(1) {
            let target = part.split(')').next().unwrap();
            if target.starts_with("http") || target.starts_with('#') {
                continue;
            }
            count += 1;
            let file = target.split('#').next().unwrap();
            assert!(folder.join(file).exists(), "{name} links {target}, which isn't there");
        }
    }
    assert!(count > 20, "{count} links are too few for a book");
}

/// A guarantee without its test isn't made: each that a page names exists.
#[test]
fn every_test_that_a_page_names_exists() {
    let mut sources = String::new();
    let mut folders = vec![repository().join("crates"), repository().join("examples")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() && !path.ends_with("target") {
                folders.push(path);
            } else if path.extension().is_some_and(|ending| ending == "rs") {
                sources.push_str(&std::fs::read_to_string(&path).unwrap());
            }
        }
    }
    let mut count = 0;
    for (name, text) in pages() {
        if !["README.md", "docs/guarantees.md"].contains(&name.as_str()) {
            continue;
        }
        // The last column of the tables of guarantees: `folder/file.rs::a_sentence`.
        for part in text.split("::").skip(1) {
            let test: String =
                part.chars().take_while(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || *c == '_').collect();
            if test.matches('_').count() < 3 {
                continue;
            }
            count += 1;
            assert!(sources.contains(&format!("fn {test}(")), "{name} names {test}, which isn't there");
        }
    }
    assert!(count >= 12, "{count} tests are too few for a table of guarantees");
}
