//! No tool gives a secret: not one that the configuration knows, not what has the form of a well-known key, and nothing of what is in
//! files that are made to hold secrets. An agent sends what it reads to a model.

use std::path::Path;

use piton_app::documents::outside::Secrecy;
use piton_app::{App, Failure};
use piton_workspace::is_likely_secret;
use serde_json::Value as Json;

/// Fields with what is in a file.
const CONTENTS: [&str; 2] = ["diff", "text"];

/// What lies over all answers.
pub(super) struct Veil(Secrecy);

impl Veil {
    /// Knows the secrets of the configuration.
    pub(super) fn of(app: &App, config: Option<&Path>) -> Result<Self, Failure> {
        Secrecy::from_readers(app, config).map(Self)
    }

    /// Takes the secrets out of an answer.
    pub(super) fn over(&self, json: &mut Json) {
        match json {
            Json::String(text) => *text = self.0.shown(text),
            Json::Array(items) => items.iter_mut().for_each(|item| self.over(item)),
            Json::Object(fields) => {
                let path = fields.get("path").and_then(Json::as_str).unwrap_or_default();
                let name = path.rsplit('/').next().unwrap_or_default();
                if is_likely_secret(name.as_bytes()) && CONTENTS.iter().any(|name| fields.contains_key(*name)) {
                    CONTENTS.iter().for_each(|name| drop(fields.remove(*name)));
                    fields.insert("withheld".to_owned(), "a file of this name may hold secrets".into());
                }
                fields.values_mut().for_each(|field| self.over(field));
            }
            _ => {}
        }
    }
}
