//! A document with the documents that it names: a `sub-workflow` node may have its graph in a file of its own
//! (`file: greet.yml`). What runs, and what a run records, is one text that needs no file any more.
//!
//! A path is relative to the document that names it and leads nowhere above it; a document that includes itself,
//! however far around, is refused, and so is what would grow without bound.

use std::collections::BTreeMap;

use piton_types::{Path, Segment, Value, to_json};

use crate::document::{Document, Source};
use crate::format::Format;
use crate::problem::{Place, Problems};
use crate::read::cut;

/// The field that names a file.
pub(crate) const FILE: &str = "file";

/// The kind whose nodes may name one.
const KIND: &str = "sub-workflow";

/// How deep documents may include one another, how many inclusions there may be, and how much text in all.
const DEEPEST: usize = 8;
const MOST: usize = 1_000;
const LARGEST: usize = 8 << 20;

/// Where documents that others name are read from.
pub trait DocumentFiles {
    /// The text of a document. `path` has names only, with `/` between them: no `..`, no root.
    ///
    /// # Errors
    ///
    /// A text for people.
    fn read(&self, path: &str) -> Result<String, String>;
}

/// A document and all that it includes.
#[derive(Debug, Clone, PartialEq)]
pub struct Bundle {
    /// One text that stands alone; the document's own if it includes nothing.
    pub text: String,
    /// Its format.
    pub format: Format,
    /// The files that went into it, each once, in the order in which they were first named.
    pub files: Vec<String>,
    source: Source,
}

impl Bundle {
    /// Reads a document and what it names.
    ///
    /// # Errors
    ///
    /// What is wrong with the document, or with one that it includes; then the file is named.
    pub fn read(text: &str, format: Format, files: &dyn DocumentFiles) -> Result<Self, Problems> {
        let value = format.read(text)?;
        let mut reading = Reading { files, read: Vec::new(), within: Vec::new(), count: 0, size: 0 };
        let source = Source { text: text.into(), format };
        match reading.include(&value, "", &source)? {
            None => Ok(Self { text: text.to_owned(), format, files: Vec::new(), source }),
            Some(whole) => match to_json(&whole) {
                Ok(json) => Ok(Self { text: json.to_string(), format: Format::Json, files: reading.read, source }),
                Err(error) => Err(Problems::one(Place::Whole, error.to_string())),
            },
        }
    }

    /// The document. What is wrong with it is told with the lines of the text that it was read from.
    ///
    /// # Errors
    ///
    /// As [`Document::parse`].
    pub fn document(&self) -> Result<Document, Problems> {
        let mut document = Document::parse(&self.text, self.format)?;
        document.source = Some(self.source.clone());
        Ok(document)
    }
}

struct Reading<'a> {
    files: &'a dyn DocumentFiles,
    read: Vec<String>,
    /// The files that are being read, one inside the other.
    within: Vec<String>,
    count: usize,
    size: usize,
}

impl Reading<'_> {
    /// The document with what it names in it; nothing if it names nothing. `folder` is where it lies.
    fn include(&mut self, value: &Value, folder: &str, source: &Source) -> Result<Option<Value>, Problems> {
        let mut wanted = Vec::new();
        find(value, &Path::root(), 0, &mut wanted);
        if wanted.is_empty() {
            return Ok(None);
        }
        let mut whole = value.clone();
        let mut problems = Problems::default();
        for (at, file) in wanted {
            match self.one(&file, folder) {
                Ok((graph, beside)) => {
                    if let Some(Value::Map(data)) = value_at(&mut whole, &at) {
                        data.insert("sub_graph".to_owned(), graph);
                    }
                    add_beside(&mut whole, beside);
                }
                Err(message) => {
                    problems.add(Place::Path(at.key(FILE)), message);
                    // Of documents inside others one is enough, or every level would tell of all below it.
                    if !self.within.is_empty() {
                        break;
                    }
                }
            }
        }
        if problems.has_errors() {
            source.locate(&mut problems);
            return Err(problems);
        }
        Ok(Some(whole))
    }

    /// The graph of a file, and what stands beside its nodes.
    fn one(&mut self, file: &str, folder: &str) -> Result<(Value, BTreeMap<String, Value>), String> {
        let path = place(folder, file)?;
        if let Some(first) = self.within.iter().position(|other| *other == path) {
            let circle: Vec<_> = self.within[first..].iter().map(String::as_str).chain([path.as_str()]).collect();
            return Err(format!("cycle: the documents include one another: {}", circle.join(" → ")));
        }
        if self.within.len() >= DEEPEST {
            return Err(format!("documents include one another more than {DEEPEST} deep"));
        }
        self.count += 1;
        let Some(format) = Format::of_file_name(&path) else {
            return Err(format!("{}: its name should end with .yml, .yaml, .json or .toml", cut(&path)));
        };
        let text = self.files.read(&path).map_err(|error| format!("{}: {error}", cut(&path)))?;
        self.size += text.len();
        if self.count > MOST || self.size > LARGEST {
            return Err("the documents that are included are too large, or too many".to_owned());
        }
        let within = |problems: Problems| {
            let told: Vec<_> = problems.iter().take(20).map(ToString::to_string).collect();
            format!("{}: {}", cut(&path), told.join("; "))
        };
        let value = format.read(&text).map_err(within)?;
        // What is wrong with it is said with its own lines.
        Document::parse(&text, format).map_err(within)?;
        if !self.read.contains(&path) {
            self.read.push(path.clone());
        }
        self.within.push(path.clone());
        let inner = path.rsplit_once('/').map_or("", |(folder, _)| folder);
        let source = Source { text: text.into(), format };
        let included = self.include(&value, inner, &source).map_err(within);
        self.within.pop();
        let value = included?.unwrap_or(value);
        Ok(graph_of(value))
    }
}

/// The nodes of a document that name a file: where their data are, and the file.
fn find(value: &Value, at: &Path, depth: usize, found: &mut Vec<(Path, String)>) {
    // Deeper than any container may lie.
    if depth > 200 {
        return;
    }
    match value {
        Value::Map(entries) => {
            let data = entries.get("data").filter(|data| data.field("type").and_then(Value::as_str) == Some(KIND));
            if let Some(file) = data.and_then(|data| data.field(FILE)?.as_str())
                && data.is_some_and(|data| data.field("sub_graph").is_none())
            {
                found.push((at.clone().key("data"), file.to_owned()));
            }
            entries.iter().for_each(|(key, value)| find(value, &at.clone().key(key), depth + 1, found));
        }
        Value::List(items) => {
            items.iter().enumerate().for_each(|(n, item)| find(item, &at.clone().index(n), depth + 1, found));
        }
        _ => {}
    }
}

/// The value at a place.
fn value_at<'a>(value: &'a mut Value, path: &Path) -> Option<&'a mut Value> {
    path.segments().iter().try_fold(value, |value, segment| match (value, segment) {
        (Value::Map(entries), Segment::Key(key)) => entries.get_mut(key),
        (Value::List(items), Segment::Index(index)) => items.get_mut(*index),
        _ => None,
    })
}

/// What a document has beside its nodes that the document that includes it needs too.
const BESIDE: [&str; 3] = ["environment_variables", "conversation_variables", "mcp_servers"];

/// The nodes and edges of a document, and what stands beside them.
fn graph_of(value: Value) -> (Value, BTreeMap<String, Value>) {
    let Value::Map(mut document) = value else { return (Value::Null, BTreeMap::new()) };
    let (mut around, graph) = match document.remove("workflow") {
        Some(Value::Map(mut workflow)) => {
            let graph = workflow.remove("graph").unwrap_or_default();
            (workflow, graph)
        }
        _ => {
            let kept = ["nodes", "edges"].map(|key| (key, document.remove(key).unwrap_or_default()));
            (document, Value::map(kept))
        }
    };
    around.retain(|key, _| BESIDE.contains(&key.as_str()));
    (graph, around)
}

/// Adds what an included document has beside its nodes, unless the one that includes it has the same name.
fn add_beside(whole: &mut Value, beside: BTreeMap<String, Value>) {
    let Value::Map(document) = whole else { return };
    let around = match document.get_mut("workflow") {
        Some(Value::Map(workflow)) => workflow,
        _ => document,
    };
    for (key, value) in beside {
        match (around.entry(key).or_insert(Value::Null), value) {
            (slot @ Value::Null, value) => *slot = value,
            (Value::Map(entries), Value::Map(more)) => {
                for (name, value) in more {
                    entries.entry(name).or_insert(value);
                }
            }
            (Value::List(items), Value::List(more)) => {
                let known: Vec<_> = items.iter().filter_map(|item| item.field("name").cloned()).collect();
                items.extend(
                    more.into_iter().filter(|item| item.field("name").is_none_or(|name| !known.contains(name))),
                );
            }
            _ => {}
        }
    }
}

/// The path of a file that a document in `folder` names.
fn place(folder: &str, file: &str) -> Result<String, String> {
    let is_name =
        |name: &str| !matches!(name, "" | "." | "..") && !name.contains('\\') && !name.chars().any(char::is_control);
    let file = file.strip_prefix("./").unwrap_or(file);
    if !file.split('/').all(is_name) {
        return Err(format!("{:?} is no path below the folder of the document", cut(file)));
    }
    Ok(if folder.is_empty() { file.to_owned() } else { format!("{folder}/{file}") })
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Folder(BTreeMap<&'static str, &'static str>);

    impl DocumentFiles for Folder {
        fn read(&self, path: &str) -> Result<String, String> {
            self.0.get(path).map(|text| (*text).to_owned()).ok_or_else(|| "there is no such file".to_owned())
        }
    }

    const INNER: &str = "environment_variables: [{name: mark, value: '!'}]\nnodes: [{id: s, data: {type: start, variables: [{variable: who}]}}, {id: e, data: {type: end, outputs: [{variable: who, value_selector: [s, who]}]}}]\nedges: [{source: s, target: e}]\n";

    fn outer(file: &str) -> String {
        format!(
            "nodes: [{{id: s, data: {{type: start}}}}, {{id: g, data: {{type: sub-workflow, file: {file}}}}}, {{id: e, data: {{type: end}}}}]\nedges: [{{source: s, target: g}}, {{source: g, target: e}}]\n"
        )
    }

    fn read(text: &str, files: &[(&'static str, &'static str)]) -> Result<Bundle, String> {
        let folder = Folder(files.iter().copied().collect());
        Bundle::read(text, Format::Yaml, &folder).map_err(|problems| problems.to_string())
    }

    #[test]
    fn a_document_stands_alone_afterwards() {
        let bundle = read(&outer("sub/greet.yml"), &[("sub/greet.yml", INNER)]).unwrap();
        assert_eq!(bundle.files, ["sub/greet.yml"]);
        let document = Document::parse(&bundle.text, bundle.format).unwrap();
        document.validate().unwrap();
        assert_eq!(document.environment[0].name, "mark");
        assert_eq!(document.nodes[1].inside.as_ref().map(|inside| inside.nodes.len()), Some(2));

        let plain = INNER.to_owned();
        let alone = read(&plain, &[]).unwrap();
        assert_eq!((alone.text, alone.format, alone.files), (plain, Format::Yaml, Vec::new()));
    }

    #[test]
    fn paths_lead_nowhere_else() {
        for file in
            ["../x.yml", "/etc/x.yml", "a/../../x.yml", "a//x.yml", "''", "./../x.yml", "'a\\x.yml'", "\"a\\0.yml\""]
        {
            let said = read(&outer(file), &[]).unwrap_err();
            assert!(said.contains("is no path below the folder"), "{file}: {said}");
        }
        assert!(read(&outer("gone.yml"), &[]).unwrap_err().contains("there is no such file"));
        assert!(read(&outer("x.txt"), &[]).unwrap_err().contains("its name should end with"));
    }

    #[test]
    fn circles_and_depth_are_found() {
        let a = "nodes: [{id: s, data: {type: start}}, {id: g, data: {type: sub-workflow, file: b.yml}}, {id: e, data: {type: end}}]\nedges: []\n";
        let b = "nodes: [{id: s, data: {type: start}}, {id: g, data: {type: sub-workflow, file: a.yml}}, {id: e, data: {type: end}}]\nedges: []\n";
        let said = read(&outer("a.yml"), &[("a.yml", a), ("b.yml", b)]).unwrap_err();
        assert!(said.contains("a.yml → b.yml → a.yml"), "{said}");
        // Each includes the next twice: two to the power of their number, if the reader didn't count.
        struct Endless;
        impl DocumentFiles for Endless {
            fn read(&self, path: &str) -> Result<String, String> {
                let twice = format!("{{type: sub-workflow, file: {}x.yml}}", path.trim_end_matches(".yml"));
                Ok(format!(
                    "nodes: [{{id: s, data: {{type: start}}}}, {{id: a, data: {twice}}}, {{id: b, data: {twice}}}]\nedges: []\n"
                ))
            }
        }
        let said = Bundle::read(&outer("a.yml"), Format::Yaml, &Endless).unwrap_err().to_string();
        assert!(said.contains("more than 8 deep"), "{said}");
    }

    #[test]
    fn what_is_wrong_inside_is_said_with_file_and_line() {
        let said = read(&outer("x.yml"), &[("x.yml", "nodes:\n  - {id: s}\nedges: []\n")]).unwrap_err();
        assert!(said.contains("x.yml: ") && said.contains("line 2"), "{said}");
    }
}
