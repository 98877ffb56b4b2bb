//! What the errors of the driver and of the server mean for a store.

use piton_store::StoreError;
use tokio_postgres::error::{DbError, SqlState};

/// How the detail of an error begins that is about the user and the password, not about rights.
pub const NOT_LET_IN: &str = "the server doesn't let the user in";

/// Why a statement has no answer.
#[derive(Debug)]
pub(crate) enum Failed {
    /// The connection broke, or the answer took too long: whether the statement was carried out is unknown.
    Lost(String),
    /// The server took it back to let another transaction through. It may be sent again.
    Undone(String),
    /// It was refused.
    Refused(StoreError),
}

impl Failed {
    /// The error for a caller that doesn't try again.
    pub(crate) fn into_error(self) -> StoreError {
        match self {
            Self::Lost(detail) | Self::Undone(detail) => StoreError::Unavailable { detail },
            Self::Refused(error) => error,
        }
    }
}

impl From<StoreError> for Failed {
    fn from(error: StoreError) -> Self {
        Self::Refused(error)
    }
}

/// What an error of a statement means. `what` is the store's URL, without a password.
pub(crate) fn statement(error: &tokio_postgres::Error, what: &str) -> Failed {
    let Some(answer) = error.as_db_error() else { return Failed::Lost(format!("{what}: {}", plain(error))) };
    let code = answer.code();
    if *code == SqlState::T_R_SERIALIZATION_FAILURE || *code == SqlState::T_R_DEADLOCK_DETECTED {
        return Failed::Undone(format!("{what}: {}", answer.message()));
    }
    // The server ends the connection: a statement that was under way may have been carried out.
    if matches!(code.code(), "57P01" | "57P02" | "57P03" | "57P05") || code.code().starts_with("08") {
        return Failed::Lost(format!("{what}: {}", answer.message()));
    }
    Failed::Refused(refusal(answer, what))
}

/// What an error on the way to a connection means.
pub(crate) fn connecting(error: &tokio_postgres::Error, what: &str) -> StoreError {
    match error.as_db_error() {
        Some(answer) => refusal(answer, what),
        None => {
            let detail = plain(error);
            match detail.contains("password missing") {
                true => StoreError::Denied {
                    what: what.to_owned(),
                    detail: format!("{NOT_LET_IN}: it asks for a password, and none was given"),
                },
                false => StoreError::Unavailable { detail: format!("{what}: {detail}") },
            }
        }
    }
}

fn refusal(answer: &DbError, what: &str) -> StoreError {
    let what = what.to_owned();
    let detail = answer.message().to_owned();
    let code = answer.code();
    match code.code() {
        "25006" => StoreError::ReadOnly { what },
        "42501" => StoreError::Denied { what, detail },
        "3D000" => StoreError::NotFound { what: format!("the database of {what}") },
        "53100" => StoreError::Full { what, detail },
        "22021" | "22P05" => StoreError::Invalid { what, detail },
        // The statements are fixed: one that the server can't carry out has met tables that Piton didn't make.
        "3F000" | "XX001" | "XX002" => StoreError::corrupt(what, detail),
        _ if code.code().starts_with("42") => StoreError::corrupt(what, detail),
        _ if code.code().starts_with("28") => StoreError::Denied { what, detail: format!("{NOT_LET_IN}: {detail}") },
        _ if code.code().starts_with("54") => StoreError::Invalid { what, detail },
        other => StoreError::Unavailable { detail: format!("{what}: {detail} ({other})") },
    }
}

/// An error of the driver with its causes. It has no password in it.
fn plain(error: &tokio_postgres::Error) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        cause = error.source();
    }
    text
}
