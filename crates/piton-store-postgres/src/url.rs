//! The URL of a store: `postgres://USER@HOST[:PORT]/DATABASE[?schema=NAME&blobs=s3://BUCKET/PREFIX]`.
//!
//! No error and nothing that is shown has the password in it, not even of a URL that can't be read.

use std::path::PathBuf;
use std::time::Duration;

use percent_encoding::percent_decode_str;
use piton_store::StoreError;
use tokio_postgres::Config;
use tokio_postgres::config::SslMode;
use url::Url;

use crate::schema::DEFAULT_SCHEMA;

const PORT: u16 = 5432;

/// How long to wait for a connection, unless `connect_timeout` says something else.
const TO_CONNECT: Duration = Duration::from_secs(10);

/// After how long without a sign of the other side a connection counts as broken.
const UNANSWERED: Duration = Duration::from_secs(30);

/// A store's URL, taken apart.
#[derive(Clone)]
pub struct PostgresUrl {
    /// Without the password.
    shown: String,
    user: String,
    password: Option<Vec<u8>>,
    host: String,
    port: u16,
    database: String,
    pub(crate) schema: String,
    pub(crate) encrypted: bool,
    pub(crate) roots: Option<PathBuf>,
    to_connect: Duration,
    blobs: Option<String>,
}

impl std::fmt::Debug for PostgresUrl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("PostgresUrl").field(&self.shown).finish()
    }
}

impl PostgresUrl {
    /// Takes a URL apart. `Invalid` says what is wrong with it.
    pub fn parse(text: &str) -> Result<Self, StoreError> {
        let invalid = |detail: &str| StoreError::Invalid {
            what: "store URL of PostgreSQL".to_owned(),
            detail: format!("{detail}; it is written as postgres://USER@HOST/DATABASE"),
        };
        let mut url = Url::parse(text).map_err(|error| invalid(&error.to_string()))?;
        if !matches!(url.scheme(), "postgres" | "postgresql") || url.cannot_be_a_base() {
            return Err(invalid("it doesn't begin with postgres://"));
        }
        let decoded = |text: &str| {
            percent_decode_str(text).decode_utf8().map(String::from).map_err(|_| invalid("a part of it isn't Unicode"))
        };
        let user = decoded(url.username())?;
        let password = url.password().map(|password| percent_decode_str(password).collect());
        let mut host = decoded(url.host_str().unwrap_or_default())?.trim_matches(['[', ']']).to_owned();
        let mut database = decoded(url.path().trim_start_matches('/'))?;
        let (mut schema, mut to_connect) = (DEFAULT_SCHEMA.to_owned(), TO_CONNECT);
        let (mut encryption, mut roots, mut blobs) = (None, None, None);
        for (name, value) in url.query_pairs() {
            match &*name {
                "schema" => schema = value.into_owned(),
                "host" => host = value.into_owned(),
                "sslrootcert" => roots = Some(PathBuf::from(&*value)),
                "connect_timeout" => {
                    let seconds = value.parse().map_err(|_| invalid("connect_timeout isn't a number of seconds"))?;
                    to_connect = Duration::from_secs(seconds);
                }
                "sslmode" => match &*value {
                    "disable" => encryption = Some(false),
                    "require" | "verify-ca" | "verify-full" => encryption = Some(true),
                    _ => return Err(invalid("sslmode is disable or verify-full")),
                },
                // It isn't repeated: it may have a key in it.
                "blobs" if value.contains('@') || !value.contains("://") => {
                    return Err(invalid("blobs= is written as s3://BUCKET/PREFIX, without a user"));
                }
                "blobs" => blobs = Some(value.into_owned()),
                _ => return Err(invalid(&format!("it has the unknown parameter {name:?}"))),
            }
        }
        if user.is_empty() {
            return Err(invalid("it names no user"));
        }
        if host.is_empty() {
            return Err(invalid("it names no host"));
        }
        if database.is_empty() {
            database.clone_from(&user);
        }
        let is_plain =
            |character: char| character.is_ascii_lowercase() || character.is_ascii_digit() || character == '_';
        if schema.is_empty()
            || schema.len() > 63
            || !schema.chars().all(is_plain)
            || schema.starts_with(|c: char| c.is_ascii_digit())
        {
            return Err(invalid("the name of a schema has up to 63 lower-case letters, digits and _"));
        }
        let port = url.port().unwrap_or(PORT);
        let fits = url.set_password(None).is_ok() && url.set_scheme("postgres").is_ok();
        let shown = if fits { url.to_string() } else { format!("postgres://{host}") };
        let encrypted = encryption.unwrap_or(!is_here(&host));
        Ok(Self { shown, user, password, host, port, database, schema, encrypted, roots, to_connect, blobs })
    }

    /// The user's name.
    pub fn user(&self) -> &str {
        &self.user
    }

    /// The host, or the folder of the server's socket.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The database.
    pub fn database(&self) -> &str {
        &self.database
    }

    /// The schema.
    pub fn schema(&self) -> &str {
        &self.schema
    }

    /// The URL of the place for large packs.
    pub fn blobs(&self) -> Option<&str> {
        self.blobs.as_deref()
    }

    /// Whether the URL itself has a password.
    pub fn has_password(&self) -> bool {
        self.password.is_some()
    }

    /// The same with a password that was found elsewhere.
    #[must_use]
    pub fn with_password(mut self, password: impl Into<Vec<u8>>) -> Self {
        self.password = Some(password.into());
        self
    }

    /// The URL for people: without the password.
    pub fn shown(&self) -> &str {
        &self.shown
    }

    pub(crate) fn config(&self) -> Config {
        let mut config = Config::new();
        config.user(&self.user).host(&self.host).port(self.port).dbname(&self.database).application_name("piton");
        config.connect_timeout(self.to_connect).tcp_user_timeout(UNANSWERED).keepalives_idle(UNANSWERED);
        config.ssl_mode(if self.encrypted { SslMode::Require } else { SslMode::Disable });
        if let Some(password) = &self.password {
            config.password(password);
        }
        config
    }
}

/// Whether what is sent to a host doesn't leave this machine.
fn is_here(host: &str) -> bool {
    host.starts_with('/')
        || host == "localhost"
        || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_taken_apart() {
        let url = PostgresUrl::parse("postgresql://me:p%40ss+@db.example:6432/team?schema=a_1").unwrap();
        assert_eq!((url.user(), url.host(), url.port(), url.database()), ("me", "db.example", 6432, "team"));
        assert_eq!((url.schema.as_str(), url.encrypted), ("a_1", true));
        assert_eq!(url.password.as_deref(), Some(&b"p@ss+"[..]));
        assert_eq!(url.shown(), "postgres://me@db.example:6432/team?schema=a_1");
        assert!(!format!("{url:?} {:?}", url.config()).contains("p@ss"));
        let url = PostgresUrl::parse("postgres://me@h/x?schema=a&blobs=s3://bucket/a?credentials=instance").unwrap();
        assert_eq!((url.blobs(), url.schema()), (Some("s3://bucket/a?credentials=instance"), "a"));
        let url = PostgresUrl::parse("postgres://me@%2Fvar%2Frun%2Fpostgresql").unwrap();
        assert_eq!((url.host(), url.database(), url.encrypted), ("/var/run/postgresql", "me", false));
        assert!(!PostgresUrl::parse("postgres://me@[::1]/x").unwrap().encrypted);
        assert!(PostgresUrl::parse("postgres://me@127.0.0.1/x?sslmode=verify-full").unwrap().encrypted);
    }

    /// Promise 22, and no error tells the password.
    #[test]
    fn wrong_urls_are_refused_without_their_password() {
        for url in [
            "postgres:me:secret@host/x",
            "postgres://me:secret@host:port/x",
            "postgres://me:secret@/x",
            "postgres://:secret@host/x",
            "postgres://me:secret@host/x?sslmode=prefer",
            "postgres://me:secret@host/x?schema=Robert'); DROP",
            "postgres://me:secret@host/x?schema=../../x",
            "postgres://me:secret@host/x?schema=",
            "postgres://me:secret@host/x?options=-c",
            "postgres://me:secret@host/x?blobs=s3://secret@bucket",
            "postgres://me:secret@host/x?blobs=bucket",
            "postgres://me:secret@a:1,b:2/x",
            "postgres://me:secret@[::/x",
        ] {
            let error = PostgresUrl::parse(url).expect_err(url).to_string();
            assert!(!error.contains("secret"), "{error}");
            assert!(error.contains("postgres://USER@HOST/DATABASE"), "{error}");
        }
    }
}
