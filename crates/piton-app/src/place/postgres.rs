//! Stores in PostgreSQL: where the password comes from, and what to do when one can't be opened.
//!
//! In this order: the URL in `PITON_STORE` or in a configuration, the file that `PGPASSFILE` names, `~/.pgpass`. A password on
//! the command line is refused: every user of the machine could read it there.

use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;

use piton_store::{Registry, StoreError};
use piton_store_postgres::{NOT_LET_IN, OutsidePacks, PostgresDriver, PostgresUrl};

use crate::app::{Access, App};
use crate::failure::{Failure, FailureKind};
use crate::place::{Origin, Place};

/// Whether the store is one in PostgreSQL.
pub(crate) fn is_here(url: &str) -> bool {
    matches!(url.split_once(':'), Some(("postgres" | "postgresql", _)))
}

/// The registry with a driver for the store at `place`, if it is one in PostgreSQL.
pub(crate) fn with(registry: Registry, app: &App, place: &Place, access: Access) -> Result<Registry, Failure> {
    if !is_here(&place.url) {
        let driver = PostgresDriver::default();
        return Ok(registry.with("postgres", driver.clone()).with("postgresql", driver));
    }
    let url = PostgresUrl::parse(&place.url).map_err(|error| {
        Failure::usage(error.to_string()).hint(match place.origin {
            Origin::Variable => "PITON_STORE names it; `PITON_STORE=postgres://USER@HOST/DATABASE?schema=NAME` is how.",
            Origin::Configuration => "the configuration names it; `postgres://USER@HOST/DATABASE?schema=NAME` is how.",
            _ => "`--store postgres://USER@HOST/DATABASE?schema=NAME` is how.",
        })
    })?;
    if url.has_password() && place.origin == Origin::Option {
        return Err(Failure::usage("a password on the command line can be read by every user of this machine").hint(format!(
            "nothing was done. Change it if it was in use, leave it out here, and give it in PITON_STORE, in the file that \
             PGPASSFILE names, or in ~/.pgpass, as the line `{}`.",
            line(&url)
        )));
    }
    let url = match url.has_password() {
        true => url,
        false => match password(app, &url)? {
            Some(password) => url.with_password(password),
            None => url,
        },
    };
    let outside = url.blobs().map(|blobs| large_packs(app, place, blobs)).transpose()?;
    let driver = PostgresDriver { create: access == Access::Create, url: Some(url), outside };
    Ok(registry.with("postgres", driver.clone()).with("postgresql", driver))
}

/// The place for large packs that `blobs=` names: a bucket, with the credentials that a store in it would have.
#[cfg(feature = "objects")]
fn large_packs(app: &App, place: &Place, blobs: &str) -> Result<OutsidePacks, Failure> {
    use piton_store_objects::{CloudObjects, CloudPlace, ObjectPacks};

    let failed = |error| crate::place::objects::unopened(error, &bucket(place, blobs));
    let place = CloudPlace::parse(blobs, &crate::place::objects::settings(app)).map_err(failed)?;
    let objects = CloudObjects::new(place).map_err(failed)?;
    Ok(OutsidePacks::new(std::sync::Arc::new(ObjectPacks::new(std::sync::Arc::new(objects)))))
}

#[cfg(not(feature = "objects"))]
fn large_packs(_: &App, _: &Place, blobs: &str) -> Result<OutsidePacks, Failure> {
    Err(Failure::usage(format!("this binary was built without stores in buckets, and blobs={blobs} names one")))
}

/// The bucket of a store, as a place of its own.
#[cfg(feature = "objects")]
fn bucket(place: &Place, blobs: &str) -> Place {
    Place { url: blobs.to_owned(), origin: place.origin }
}

/// Whether an error is one of the bucket and not of the server.
#[cfg(feature = "objects")]
fn is_of_bucket(error: &StoreError, blobs: &str) -> bool {
    match error {
        StoreError::Unavailable { detail } => detail.starts_with(blobs),
        StoreError::NotFound { what } => what.ends_with(&format!(" of {blobs}")),
        StoreError::Denied { what, .. } | StoreError::Invalid { what, .. } => what.starts_with(blobs),
        _ => false,
    }
}

/// The password from a password file.
fn password(app: &App, url: &PostgresUrl) -> Result<Option<String>, Failure> {
    let named = app.variable("PGPASSFILE").map(PathBuf::from);
    let usual = app.surroundings.home.as_ref().map(|home| home.join(".pgpass"));
    let (path, is_named) = match (named, usual) {
        (Some(path), _) => (path, true),
        (None, Some(path)) => (path, false),
        (None, None) => return Ok(None),
    };
    let shown = path.display();
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound && !is_named => return Ok(None),
        Err(error) => {
            return Err(Failure::fixable(format!("can't read the password file {shown}"))
                .because(&error)
                .hint(format!("nothing was done. It has lines as `{}`.", line(url))));
        }
    };
    if path.metadata().is_ok_and(|data| data.mode() & 0o077 != 0) {
        return Err(Failure::refused(format!("the password file {shown} can be read by other users"))
            .hint(format!("nothing was done. Run `chmod 600 {shown}`, and change the passwords in it.")));
    }
    Ok(url.password_in(&text))
}

/// The line of a password file for a store.
fn line(url: &PostgresUrl) -> String {
    format!("{}:{}:{}:{}:PASSWORD", url.host(), url.port(), url.database(), url.user())
}

/// Why a store in PostgreSQL can't be opened, and what to do.
pub(crate) fn unopened(error: StoreError, place: &Place) -> Failure {
    let Ok(url) = PostgresUrl::parse(&place.url) else { return error.into() };
    #[cfg(feature = "objects")]
    if let Some(blobs) = url.blobs().filter(|blobs| is_of_bucket(&error, blobs)) {
        return crate::place::objects::unopened(error, &bucket(place, blobs));
    }
    let (user, host, port) = (url.user(), url.host(), url.port());
    let (database, schema) = (url.database(), url.schema());
    let (kind, hint) = match &error {
        StoreError::Unavailable { .. } => (
            FailureKind::Unavailable,
            format!(
                "nothing was changed. Is PostgreSQL running there, and does it take connections from here? `pg_isready -h \
                 {host} -p {port}` tells. Beyond this machine TLS is used: `sslrootcert=FILE` in the URL names the authority."
            ),
        ),
        StoreError::Denied { detail, .. } if detail.starts_with(NOT_LET_IN) => (
            FailureKind::Fixable,
            format!(
                "nothing was changed. Is it the right user and password? It is taken from PITON_STORE, the file that PGPASSFILE \
                 names, or ~/.pgpass, as the line `{}`. If it is right, pg_hba.conf on the server must let {user} in.",
                line(&url)
            ),
        ),
        StoreError::Denied { .. } => (
            FailureKind::Fixable,
            format!(
                "nothing was changed. Whoever owns the database can say `CREATE SCHEMA {schema} AUTHORIZATION \"{user}\"`; for a \
                 schema that is there, `GRANT USAGE ON SCHEMA {schema} TO \"{user}\"` and \
                 `GRANT ALL ON ALL TABLES IN SCHEMA {schema} TO \"{user}\"`."
            ),
        ),
        StoreError::NotFound { what } if what.contains("database of") => (
            FailureKind::NotFound,
            format!("nothing was changed. `createdb -h {host} -p {port} -U {user} {database}` makes the database."),
        ),
        StoreError::NotFound { .. } => (
            FailureKind::NotFound,
            "`piton init` makes one there; or another `?schema=NAME` is the right one.".to_owned(),
        ),
        StoreError::ReadOnly { .. } => (
            FailureKind::Fixable,
            "nothing was changed. Name the primary server: a store can't be on a standby.".to_owned(),
        ),
        StoreError::Invalid { what, .. } if what.starts_with("schema") => (
            FailureKind::Fixable,
            "nothing was changed. Name a schema of its own for the store: `?schema=NAME` in the URL.".to_owned(),
        ),
        StoreError::Invalid { what, .. } if what.starts_with("the place for large packs") => (
            FailureKind::Fixable,
            "nothing was changed. Everyone who uses the store names the same place: `&blobs=…` in the URL, or none if it has \
             none. `piton copy FROM TO` moves a store to another place."
                .to_owned(),
        ),
        StoreError::Invalid { .. } => (
            FailureKind::Fixable,
            "nothing was changed. Change that on the server, or name another one: a store must not lose what it has \
             acknowledged."
                .to_owned(),
        ),
        StoreError::Corrupt { .. } => (
            FailureKind::Damaged,
            format!(
                "nothing was changed. Either another program has changed the schema {schema}, or it isn't a store: name another \
                 one with `?schema=NAME`, or bring back the server's backup."
            ),
        ),
        _ => return error.into(),
    };
    Failure::new(kind, error.to_string()).causes_of(&error).hint(hint)
}
