//! What the errors of an object store mean. None of them tells a credential, whatever the server repeats.

use object_store::Error;
use piton_store::StoreError;

/// A longer answer of a server says nothing more.
const LONGEST: usize = 400;

/// Texts that are never shown.
#[derive(Clone, Default)]
pub(super) struct Secrets(Vec<String>);

impl std::fmt::Debug for Secrets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secrets")
    }
}

impl Secrets {
    pub(super) fn new(texts: impl IntoIterator<Item = String>) -> Self {
        let mut texts: Vec<_> = texts.into_iter().filter(|text| !text.is_empty()).collect();
        // One that has another in it goes first.
        texts.sort_by_key(|text| std::cmp::Reverse(text.len()));
        Self(texts)
    }

    /// The text without them, in one line.
    pub(super) fn hide(&self, text: &str) -> String {
        let mut text = self.0.iter().fold(text.to_owned(), |text, secret| text.replace(secret, "…"));
        text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        if text.len() > LONGEST {
            text.truncate(text.floor_char_boundary(LONGEST));
            text.push('…');
        }
        text
    }
}

/// An error of a place as one of a store. `what` is its URL.
pub(super) fn store_error(error: &Error, what: &str, secrets: &Secrets) -> StoreError {
    let what = what.to_owned();
    let text = error.to_string();
    let detail = secrets.hide(&text);
    match error {
        Error::NotFound { .. } => StoreError::NotFound { what: format!("the bucket of {what}") },
        Error::PermissionDenied { .. } | Error::Unauthenticated { .. } => StoreError::Denied { what, detail },
        Error::InvalidPath { .. }
        | Error::UnknownConfigurationKey { .. }
        | Error::NotSupported { .. }
        | Error::NotImplemented { .. } => StoreError::Invalid { what, detail },
        // Of a list no more is told.
        _ if text.contains("404 Not Found") => StoreError::NotFound { what: format!("the bucket of {what}") },
        _ if text.contains("403 Forbidden") => StoreError::Denied { what, detail },
        _ => StoreError::Unavailable { detail: format!("{what}: {detail}") },
    }
}
