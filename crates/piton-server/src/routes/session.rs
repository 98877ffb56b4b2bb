//! Signing in and out.

use axum::body::Body;
use axum::http::{HeaderValue, Response, StatusCode, header};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value as Json, json};

use super::{Answer, Call, answer, nothing};
use crate::gate::COOKIE;
use crate::problem::Problem;
use crate::tokens::{Role, SIGNED_IN};

/// A token, to be signed in with.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct SignIn {
    /// A token of the server's folder.
    token: String,
}

/// The link that the server printed.
pub(super) async fn by_link(call: Call) -> Answer {
    let door = call.server.door()?;
    let role = call.query.text("code").and_then(|code| door.tokens.redeem(code));
    let mut answer = Response::new(Body::empty());
    *answer.status_mut() = StatusCode::SEE_OTHER;
    let target = if role.is_some() { "/" } else { "/?problem=code" };
    answer.headers_mut().insert(header::LOCATION, HeaderValue::from_static(target));
    answer.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if let Some(role) = role {
        set_cookie(&call, &mut answer, role)?;
    }
    Ok(answer)
}

pub(super) async fn sign_in(call: Call) -> Answer {
    let SignIn { token } = call.taken()?;
    let door = call.server.door()?;
    let Some(role) = door.tokens.role_of(token.trim()) else {
        return Err(door.gate.wrong_token(call.peer()?.0.ip()).field("token"));
    };
    let mut signed_in = answer(StatusCode::OK, &about(&call, role))?;
    set_cookie(&call, &mut signed_in, role)?;
    Ok(signed_in)
}

pub(super) async fn sign_out(call: Call) -> Answer {
    let mut answer = nothing();
    put_cookie(&call, &mut answer, "", 0)?;
    Ok(answer)
}

pub(super) async fn session(call: Call) -> Answer {
    let who = crate::gate::who(&call.server, &axum::http::Method::GET, &call.headers, call.peer()?)?;
    answer(StatusCode::OK, &about(&call, who.role))
}

fn about(call: &Call, role: Role) -> Json {
    let app = &call.server.app;
    let may: Vec<_> = Role::ALL.into_iter().filter(|other| *other <= role).collect();
    json!({
        "role": role,
        "name": role,
        "may": may,
        "folder": app.folder().to_string_lossy(),
        "version": env!("CARGO_PKG_VERSION"),
    })
}

fn set_cookie(call: &Call, answer: &mut Response<Body>, role: Role) -> Result<(), Problem> {
    put_cookie(call, answer, &call.server.door()?.tokens.cookie(role), SIGNED_IN.as_secs())
}

fn put_cookie(call: &Call, answer: &mut Response<Body>, value: &str, seconds: u64) -> Result<(), Problem> {
    let secure = if call.server.door()?.is_secure { "; Secure" } else { "" };
    let cookie = format!("{COOKIE}={value}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Strict{secure}");
    let cookie = HeaderValue::from_str(&cookie)
        .map_err(|error| piton_app::Failure::internal("a cookie isn't one").because(&error))?;
    answer.headers_mut().insert(header::SET_COOKIE, cookie);
    Ok(())
}
