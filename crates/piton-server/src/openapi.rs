//! The description of the API, made from the table of routes and from the types of what they take.

use schemars::generate::SchemaSettings;
use serde_json::{Map, Value as Json, json};

use crate::routes::{Route, TABLE, Taken};

/// The description.
pub(crate) fn description() -> Json {
    let mut generator = SchemaSettings::openapi3().into_generator();
    let mut paths = Map::new();
    for route in TABLE {
        let operation = operation(route, &mut generator);
        let path = paths.entry(route.path).or_insert_with(|| json!({}));
        path[route.method.as_str().to_ascii_lowercase()] = operation;
    }
    let mut schemas = generator.take_definitions(true);
    schemas.insert("Problem".to_owned(), problem());
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Piton",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "What the command line can look at and do, over HTTP. Answers have the JSON of `piton … --json`.",
        },
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {
                "token": { "type": "http", "scheme": "bearer" },
                "cookie": { "type": "apiKey", "in": "cookie", "name": crate::gate::COOKIE },
            },
        },
        "security": [{ "token": [] }, { "cookie": [] }],
    })
}

fn operation(route: &Route, generator: &mut schemars::SchemaGenerator) -> Json {
    let in_path = route.path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
    let in_path =
        in_path.map(|name| json!({ "name": name, "in": "path", "required": true, "schema": { "type": "string" } }));
    let in_query = route.query.iter().map(|parameter| {
        json!({
            "name": parameter.name, "in": "query", "description": parameter.about, "schema": { "type": parameter.kind },
        })
    });
    let parameters: Vec<Json> = in_path.chain(in_query).collect();
    let mut operation = json!({
        "summary": route.about,
        "operationId": route.name(),
        "parameters": parameters,
        "responses": {
            route.status.to_string(): {
                "description": route.gives,
                "content": { route.kind: { "schema": {} } },
            },
            "default": {
                "description": "Why it isn't done.",
                "content": { "application/problem+json": { "schema": { "$ref": "#/components/schemas/Problem" } } },
            },
        },
    });
    match route.role {
        Some(role) => operation["x-role"] = role.as_str().into(),
        None => operation["security"] = json!([]),
    }
    if let Taken::Json(schema) = route.takes {
        operation["requestBody"] = json!({
            "required": true,
            "content": { "application/json": { "schema": schema(generator) } },
        });
    }
    operation
}

fn problem() -> Json {
    json!({
        "type": "object",
        "required": ["type", "title", "status", "kind", "detail", "causes", "hint"],
        "properties": {
            "type": { "type": "string" },
            "title": { "type": "string", "description": "What happened." },
            "status": { "type": "integer" },
            "kind": { "type": "string", "description": "What programs decide by." },
            "detail": { "type": "string", "description": "What happened and why, on one line." },
            "causes": { "type": "array", "items": { "type": "string" } },
            "hint": { "type": ["string", "null"], "description": "What to do, with commands between backticks." },
            "field": { "type": "string", "description": "The parameter or field that is to blame." },
            "problems": { "type": "array", "items": { "type": "object" }, "description": "What is wrong with a document or an answer, one by one." },
        },
    })
}
