//! The lines of a text at which the parts of what it says stand. Looked for only when there is a
//! problem to be placed.

use std::collections::BTreeMap;
use std::fmt;

use piton_types::{Path, Segment};
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::Spanned;

use crate::document::Source;
use crate::format::{Format, on_a_large_stack, yaml_options};

/// Finds the lines of these paths, or of what is nearest around them.
pub(crate) fn locate<'a>(source: &Source, places: impl Iterator<Item = (&'a Path, &'a mut Option<usize>)>) {
    let mut places = places.peekable();
    if places.peek().is_none() {
        return;
    }
    let read = || match source.format {
        Format::Toml => read_toml(&source.text),
        // JSON is YAML too.
        Format::Yaml | Format::Json => read_yaml(&source.text),
    };
    if let Ok(Some(root)) = on_a_large_stack(read) {
        places.for_each(|(path, line)| *line = Some(root.line(path)));
    }
}

/// Where a value begins, and where those inside it do.
#[derive(Debug, Default)]
struct Located {
    line: usize,
    inside: Inside,
}

#[derive(Debug, Default)]
enum Inside {
    #[default]
    Nothing,
    List(Vec<Located>),
    Map(BTreeMap<String, Located>),
}

impl Located {
    fn line(&self, path: &Path) -> usize {
        let mut found = self;
        for segment in path.segments() {
            let inner = match (&found.inside, segment) {
                (Inside::List(items), Segment::Index(place)) => items.get(*place),
                (Inside::Map(entries), segment) => entries.get(segment.as_key().as_ref()),
                _ => None,
            };
            match inner {
                Some(inner) => found = inner,
                None => break,
            }
        }
        found.line
    }
}

fn read_yaml(text: &str) -> Option<Located> {
    serde_saphyr::from_str_with_options::<Tree>(text, yaml_options()).ok().map(|tree| tree.0)
}

struct Tree(Located);

impl<'de> Deserialize<'de> for Tree {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Spanned { value: Contents(inside), referenced, .. } = Spanned::<Contents>::deserialize(deserializer)?;
        Ok(Self(Located { line: usize::try_from(referenced.line()).unwrap_or(usize::MAX), inside }))
    }
}

struct Contents(Inside);

impl<'de> Deserialize<'de> for Contents {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AnyVisitor).map(Self)
    }
}

struct AnyVisitor;

impl<'de> Visitor<'de> for AnyVisitor {
    type Value = Inside;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("anything")
    }

    fn visit_bool<E>(self, _: bool) -> Result<Inside, E> {
        Ok(Inside::Nothing)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Inside, E> {
        Ok(Inside::Nothing)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Inside, E> {
        Ok(Inside::Nothing)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Inside, E> {
        Ok(Inside::Nothing)
    }

    fn visit_str<E>(self, _: &str) -> Result<Inside, E> {
        Ok(Inside::Nothing)
    }

    fn visit_bytes<E>(self, _: &[u8]) -> Result<Inside, E> {
        Ok(Inside::Nothing)
    }

    fn visit_unit<E>(self) -> Result<Inside, E> {
        Ok(Inside::Nothing)
    }

    fn visit_none<E>(self) -> Result<Inside, E> {
        Ok(Inside::Nothing)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Inside, D::Error> {
        deserializer.deserialize_any(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Inside, A::Error> {
        let mut found = Vec::new();
        while let Some(Tree(item)) = items.next_element()? {
            found.push(item);
        }
        Ok(Inside::List(found))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Inside, A::Error> {
        let mut found = BTreeMap::new();
        while let Some((key, Tree(entry))) = entries.next_entry::<String, Tree>()? {
            found.insert(key, entry);
        }
        Ok(Inside::Map(found))
    }
}

fn read_toml(text: &str) -> Option<Located> {
    let table = toml::de::DeTable::parse(text).ok()?;
    let starts: Vec<usize> = std::iter::once(0).chain(text.match_indices('\n').map(|(place, _)| place + 1)).collect();
    let line = |byte: usize| starts.partition_point(|start| *start <= byte);
    Some(Located { line: 1, inside: toml_map(table.get_ref(), &line) })
}

fn toml_map(table: &toml::de::DeTable<'_>, line: &dyn Fn(usize) -> usize) -> Inside {
    let entries = table.iter().map(|(key, value)| {
        let inside = toml_inside(value.get_ref(), line);
        (key.get_ref().to_string(), Located { line: line(key.span().start), inside })
    });
    Inside::Map(entries.collect())
}

fn toml_inside(value: &toml::de::DeValue<'_>, line: &dyn Fn(usize) -> usize) -> Inside {
    if let Some(table) = value.as_table() {
        return toml_map(table, line);
    }
    let Some(items) = value.as_array() else { return Inside::Nothing };
    let items = items.iter().map(|item| {
        let inside = toml_inside(item.get_ref(), line);
        Located { line: line(item.span().start), inside }
    });
    Inside::List(items.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &str, format: Format, path: &str) -> Option<usize> {
        let (source, path) = (Source { text: text.into(), format }, path.parse().unwrap());
        let mut line = None;
        locate(&source, std::iter::once((&path, &mut line)));
        line
    }

    #[test]
    fn lines_are_found_in_every_format() {
        let yaml = "a: 1\nnodes:\n  - id: x\n    data: {type: end}\n  - id: y\n";
        assert_eq!(line(yaml, Format::Yaml, "/nodes/0/data/type"), Some(4));
        assert_eq!(line(yaml, Format::Yaml, "/nodes/1/id"), Some(5));
        assert_eq!(line(yaml, Format::Yaml, "/nodes/1/data/deep"), Some(5), "the nearest that is there");
        let json = "{\n\"a\": [\n1,\n{\"b\": 2}]}";
        assert_eq!(line(json, Format::Json, "/a/1/b"), Some(4));
        let odd = "{\"\\\"]\": [],\n\"b\": {\"c\":\n-1.5e3, \"d\\u0041\": [[], {}, \"}\",\nnull]}}";
        assert_eq!(line(odd, Format::Json, "/b/c"), Some(3), "where the value begins");
        assert_eq!(line(odd, Format::Json, "/b/dA/3"), Some(4));
        let tabs = "{\n\t\"a\": [\n\t\t1,\n\t\t{\n\t\t\t\"b\": 2\n\t\t}\n\t]\n}";
        assert_eq!(line(tabs, Format::Json, "/a/1/b"), Some(5));
        let toml = "a = 1\n[[nodes]]\nid = \"x\"\n[nodes.data]\ntype = \"end\"\n[[nodes]]\nid = \"y\"\n";
        assert_eq!(line(toml, Format::Toml, "/nodes/0/data/type"), Some(5));
        assert_eq!(line(toml, Format::Toml, "/nodes/1/id"), Some(7));
    }
}
