//! What went wrong, as an answer: a problem object (RFC 9457) with the failure's causes, its hint and, where one is to
//! blame, the field.

use axum::body::Body;
use axum::http::{Response, StatusCode, header};
use piton_app::{Failure, FailureKind};
use serde_json::{Value as Json, json};

/// Why a request isn't done.
#[derive(Debug)]
pub(crate) struct Problem(Box<Inner>);

#[derive(Debug)]
struct Inner {
    status: StatusCode,
    kind: &'static str,
    failure: Failure,
    field: Option<String>,
    /// What is wrong with a document or an answer, one by one.
    problems: Option<Json>,
}

impl Problem {
    /// One that has a status of its own.
    pub(crate) fn new(status: StatusCode, kind: &'static str, failure: Failure) -> Self {
        Self(Box::new(Inner { status, kind, failure, field: None, problems: None }))
    }

    /// A field of the query or the body that is to blame.
    pub(crate) fn of_field(field: impl Into<String>, message: impl std::fmt::Display) -> Self {
        let field = field.into();
        Self::from(Failure::usage(format!("{field}: {message}"))).field(field)
    }

    /// Names the field that is to blame.
    pub(crate) fn field(mut self, field: impl Into<String>) -> Self {
        self.0.field = Some(field.into());
        self
    }

    /// Adds what is wrong with a document or an answer, one by one.
    pub(crate) fn problems(mut self, problems: Json) -> Self {
        self.0.problems = Some(problems);
        self
    }

    pub(crate) fn unauthenticated() -> Self {
        let failure = Failure::refused("a token is needed").hint(
            "`piton serve` prints a link that signs a browser in; programs send `Authorization: Bearer TOKEN` with a \
             token of its folder.",
        );
        Self::new(StatusCode::UNAUTHORIZED, "unauthenticated", failure)
    }

    pub(crate) fn forbidden(message: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, "forbidden", Failure::refused(message))
    }

    pub(crate) fn not_found(message: impl Into<String>) -> Self {
        Self::from(Failure::not_found(message))
    }

    pub(crate) fn status(&self) -> StatusCode {
        self.0.status
    }

    /// Whether the store may be of no use any more.
    pub(crate) fn doubts_store(&self) -> bool {
        matches!(self.0.failure.kind(), FailureKind::Unavailable | FailureKind::Internal)
            || self.0.failure.message().contains("opened anew")
            || self.0.failure.advice().is_some_and(|hint| hint.to_string().contains("opened anew"))
    }

    /// As an object.
    pub(crate) fn object(&self) -> Json {
        let mut object = json!({
            "type": "about:blank",
            "title": self.0.failure.title(),
            "status": self.0.status.as_u16(),
            "kind": self.0.kind,
            "detail": self.0.failure.message(),
            "causes": self.0.failure.causes(),
            "hint": self.0.failure.advice().map(ToString::to_string),
        });
        if let Some(field) = &self.0.field {
            object["field"] = field.as_str().into();
        }
        if let Some(problems) = &self.0.problems {
            object["problems"] = problems.clone();
        }
        object
    }

    /// As an answer.
    pub(crate) fn answer(&self) -> Response<Body> {
        let mut answer = Response::new(Body::from(self.object().to_string()));
        *answer.status_mut() = self.0.status;
        let headers = answer.headers_mut();
        headers.insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/problem+json"));
        headers.insert(header::CACHE_CONTROL, header::HeaderValue::from_static("no-store"));
        match self.0.status {
            StatusCode::UNAUTHORIZED => {
                headers.insert(header::WWW_AUTHENTICATE, header::HeaderValue::from_static("Bearer"));
            }
            StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => {
                headers.insert(header::RETRY_AFTER, header::HeaderValue::from_static("5"));
            }
            _ => {}
        }
        answer
    }
}

impl From<Failure> for Problem {
    fn from(failure: Failure) -> Self {
        let (status, kind) = match failure.kind() {
            FailureKind::Usage => (StatusCode::BAD_REQUEST, "usage"),
            FailureKind::NotFound => (StatusCode::NOT_FOUND, "not_found"),
            FailureKind::Refused => (StatusCode::CONFLICT, "refused"),
            FailureKind::Unavailable => (StatusCode::SERVICE_UNAVAILABLE, "unavailable"),
            FailureKind::Damaged => (StatusCode::INTERNAL_SERVER_ERROR, "damaged"),
            FailureKind::Internal => (StatusCode::INTERNAL_SERVER_ERROR, "internal"),
            _ => (StatusCode::UNPROCESSABLE_ENTITY, "fixable"),
        };
        Self::new(status, kind, failure)
    }
}
