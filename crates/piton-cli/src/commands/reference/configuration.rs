//! The configuration, from the types that it is read into: their fields, comments and defaults.

use schemars::generate::SchemaSettings;
use serde_json::Value as Json;

use piton_app::documents::outside::Config;

/// The JSON schema of the file.
pub(super) fn schema() -> Json {
    let settings = SchemaSettings::draft2020_12().with(|settings| settings.inline_subschemas = true);
    settings.into_generator().into_root_schema_for::<Config>().to_value()
}

pub(super) fn markdown() -> String {
    let mut text = "# Configuration\n\n`--config FILE` of `run`, `resume`, `retry`, `answer`, `undo`, `redo` and `restore` names \
        a file, by custom `piton.toml`; YAML and JSON say the same in their own way. Nothing is read unless you name it: a \
        file that lies in a folder may have come with another person's document, and could send a key elsewhere. What isn't \
        known is refused. `piton.schema.json` beside this page is the JSON schema.\n"
        .to_owned();
    section(&schema(), "", "Top level", &mut text);
    text
}

/// One table of a TOML file, and those inside it.
fn section(schema: &Json, path: &str, heading: &str, text: &mut String) {
    let Some(properties) = schema["properties"].as_object() else { return };
    text.push_str(&format!("\n## {heading}\n\n| option | value | default | |\n|---|---|---|---|\n"));
    let required = |name: &str| schema["required"].as_array().is_some_and(|names| names.iter().any(|one| one == name));
    let mut inner = Vec::new();
    for (name, property) in properties {
        let property = present(property);
        let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        let default = match (&properties[name]["default"], required(name)) {
            (_, true) => "must be said".to_owned(),
            (Json::Null, _) => String::new(),
            (default, _) => format!("`{default}`"),
        };
        let (value, table) = kind(property, &path);
        let about = properties[name]["description"].as_str().or(property["description"].as_str()).unwrap_or_default();
        let about = about.replace('\n', " ").replace('|', "\\|");
        let (default, value) = match &table {
            Some(_) if default.starts_with("`{") || default == "`[]`" => (String::new(), value),
            _ => (default, value),
        };
        text.push_str(&format!("| `{name}` | {value} | {default} | {about}{} |\n", choices(property)));
        inner.extend(table);
    }
    for (path, heading, schema) in inner {
        section(&schema, &path, &heading, text);
    }
}

/// The schema behind one that also allows null.
fn present(schema: &Json) -> &Json {
    let options = schema["anyOf"].as_array().map(Vec::as_slice).unwrap_or_default();
    options.iter().find(|option| option["type"] != "null").unwrap_or(schema)
}

/// What people call a value, and the table that it is.
fn kind(schema: &Json, path: &str) -> (String, Option<(String, String, Json)>) {
    let table = |path: String, heading: String, schema: &Json| Some((path, heading, schema.clone()));
    if schema["properties"].is_object() {
        return ("a table".to_owned(), table(path.to_owned(), format!("`[{path}]`"), schema));
    }
    if schema["additionalProperties"]["properties"].is_object() {
        let path = format!("{path}.NAME");
        return (
            "tables by name".to_owned(),
            table(path.clone(), format!("`[{path}]`"), &schema["additionalProperties"]),
        );
    }
    if schema["items"]["properties"].is_object() {
        return ("a list of tables".to_owned(), table(path.to_owned(), format!("`[[{path}]]`"), &schema["items"]));
    }
    let word = match &schema["type"] {
        Json::String(word) => word.clone(),
        Json::Array(words) => {
            words.iter().filter_map(Json::as_str).find(|word| *word != "null").unwrap_or("any").to_owned()
        }
        _ => "string".to_owned(),
    };
    let word = match word.as_str() {
        "string" => "text",
        "integer" => "a whole number",
        "number" => "a number",
        "boolean" => "`true` or `false`",
        "array" => "a list of texts",
        "object" => "values by name",
        other => other,
    };
    (word.to_owned(), None)
}

/// What an option can be, with what each means.
fn choices(schema: &Json) -> String {
    let mut words = Vec::new();
    for choice in schema["oneOf"].as_array().into_iter().flatten() {
        let meaning = choice["description"].as_str().unwrap_or_default().replace('\n', " ");
        words.extend(choice["const"].as_str().map(|word| format!("`{word}`: {meaning}")));
        words.extend(
            choice["enum"].as_array().into_iter().flatten().filter_map(Json::as_str).map(|word| format!("`{word}`")),
        );
    }
    words.extend(
        schema["enum"].as_array().into_iter().flatten().filter_map(Json::as_str).map(|word| format!("`{word}`")),
    );
    if words.is_empty() { String::new() } else { format!(" One of {}", words.join(", ")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every option that the parser knows is in the table, and nothing else is.
    #[test]
    fn the_table_has_what_the_parser_reads() {
        let text = markdown();
        for option in ["level", "providers", "api_key", "tool_calls", "hosts", "webhook", "upstream", "reachable"] {
            assert!(text.contains(&format!("| `{option}` |")), "{option} is missing");
        }
        assert_eq!(schema()["additionalProperties"], false, "what isn't known is refused");
    }
}
