//! Stores in a cloud and in a Redis: where the credentials come from, and what to do when one can't be opened.
//!
//! Those of a cloud are in the environment variables that the usual tools read. The password of a Redis is in the URL in
//! `PITON_STORE` or in a configuration, or in `REDISCLI_AUTH`; on the command line it is refused: every user of the machine
//! could read it there.

use piton_store::{Registry, StoreError};
use piton_store_objects::{CloudDriver, CloudKind, CloudPlace, CloudSettings, RedisDriver, RedisUrl, Secret};

use crate::app::{Access, App};
use crate::failure::{Failure, FailureKind};
use crate::place::{Origin, Place};

/// Whether the store is one in a cloud or in a Redis.
pub(crate) fn is_here(url: &str) -> bool {
    is_cloud(url) || is_redis(url)
}

fn is_cloud(url: &str) -> bool {
    matches!(url.split_once(':'), Some(("s3" | "gs" | "az", _)))
}

fn is_redis(url: &str) -> bool {
    matches!(url.split_once(':'), Some(("redis" | "rediss", _)))
}

/// The registry with drivers for such stores.
pub(crate) fn with(registry: Registry, app: &App, place: &Place, access: Access) -> Result<Registry, Failure> {
    let create = access == Access::Create;
    if is_redis(&place.url) {
        let url = RedisUrl::parse(&place.url).map_err(|error| unopened(error, place))?;
        if url.has_password() && place.origin == Origin::Option {
            return Err(Failure::usage("a password on the command line can be read by every user of this machine")
                .hint(
                    "nothing was done. Change it if it was in use, leave it out here, and give it in PITON_STORE or in \
                 REDISCLI_AUTH.",
                ));
        }
    }
    let settings = if is_cloud(&place.url) { settings(app) } else { CloudSettings::new() };
    let password = app.variable("REDISCLI_AUTH").map(Secret);
    let mut registry = registry;
    for kind in [CloudKind::S3, CloudKind::Google, CloudKind::Azure] {
        registry = registry.with(kind.scheme(), CloudDriver { kind, create, settings: settings.clone() });
    }
    for (scheme, secure) in [("redis", false), ("rediss", true)] {
        registry = registry.with(scheme, RedisDriver { secure, create, password: password.clone() });
    }
    Ok(registry)
}

/// What reaches a cloud, credentials included.
pub(crate) fn settings(app: &App) -> CloudSettings {
    CloudPlace::settings().filter_map(|name| Some((name.to_owned(), app.variable(name)?))).collect()
}

/// Why such a store can't be opened, and what to do.
pub(crate) fn unopened(error: StoreError, place: &Place) -> Failure {
    let is_cloud = is_cloud(&place.url);
    let (kind, hint) = match &error {
        StoreError::Invalid { what, .. } if what.starts_with("store URL") => (
            FailureKind::Usage,
            match place.origin {
                Origin::Variable => "nothing was done; PITON_STORE names it.",
                Origin::Configuration => "nothing was done; the configuration names it.",
                _ => "nothing was done.",
            },
        ),
        StoreError::Unavailable { .. } if is_cloud => (
            FailureKind::Unavailable,
            "nothing was changed. Is it the right endpoint (AWS_ENDPOINT_URL, AWS_REGION), and can it be reached from here?",
        ),
        StoreError::Unavailable { .. } => (
            FailureKind::Unavailable,
            "nothing was changed. Is Redis running there, and does it take connections from here? `redis-cli -h HOST -p PORT \
             ping` tells.",
        ),
        StoreError::Denied { .. } if is_cloud => (
            FailureKind::Fixable,
            "nothing was changed. The credentials are taken from the environment: AWS_ACCESS_KEY_ID and \
             AWS_SECRET_ACCESS_KEY, GOOGLE_APPLICATION_CREDENTIALS, or AZURE_STORAGE_ACCOUNT_NAME and \
             AZURE_STORAGE_ACCOUNT_KEY. They must be allowed to get, put, delete and list.",
        ),
        StoreError::Denied { .. } => (
            FailureKind::Fixable,
            "nothing was changed. The password is taken from PITON_STORE or REDISCLI_AUTH; a user of an access list needs \
             EVAL, EVALSHA, SCRIPT LOAD, INFO and CONFIG GET.",
        ),
        StoreError::NotFound { what } if what.starts_with("the bucket") => {
            (FailureKind::NotFound, "nothing was changed. Make the bucket first, or name another one.")
        }
        StoreError::NotFound { .. } => {
            (FailureKind::NotFound, "`piton init` makes one there; or another prefix is the right one.")
        }
        StoreError::ReadOnly { .. } => (FailureKind::Fixable, "nothing was changed. Name the primary server."),
        StoreError::Invalid { .. } => (
            FailureKind::Fixable,
            "nothing was changed. Change that on the server, or name another prefix or another server: a store must not \
             lose what it has acknowledged.",
        ),
        _ => return error.into(),
    };
    Failure::new(kind, error.to_string()).causes_of(&error).hint(hint)
}
