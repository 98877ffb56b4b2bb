//! The URL of a store: `redis://[USER][:PASSWORD]@HOST[:PORT][/DATABASE][?prefix=NAME][&durability=…]`, or `rediss://` with TLS.
//!
//! No error and nothing that is shown has the password in it, not even of a URL that can't be read.

use percent_encoding::percent_decode_str;
use piton_store::StoreError;
use redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo as _, RedisConnectionInfo};
use url::Url;

use super::durability::RedisDurability;

const PORT: u16 = 6379;

/// A store's URL, taken apart.
#[derive(Clone)]
pub struct RedisUrl {
    host: String,
    port: u16,
    is_secure: bool,
    user: Option<String>,
    password: Option<String>,
    database: i64,
    pub(super) prefix: String,
    pub(super) durability: RedisDurability,
}

impl std::fmt::Debug for RedisUrl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("RedisUrl").field(&self.shown()).finish()
    }
}

impl RedisUrl {
    /// Takes a URL apart. `Invalid` says what is wrong with it.
    pub fn parse(text: &str) -> Result<Self, StoreError> {
        let invalid = |detail: &str| StoreError::Invalid {
            what: "store URL of Redis".to_owned(),
            detail: format!("{detail}; it is written as redis://HOST/DATABASE?prefix=NAME"),
        };
        let url = Url::parse(text).map_err(|error| invalid(&error.to_string()))?;
        if !matches!(url.scheme(), "redis" | "rediss") || url.cannot_be_a_base() {
            return Err(invalid("it doesn't begin with redis:// or rediss://"));
        }
        let decoded = |text: &str| {
            percent_decode_str(text).decode_utf8().map(String::from).map_err(|_| invalid("a part of it isn't Unicode"))
        };
        let user = Some(decoded(url.username())?).filter(|user| !user.is_empty());
        let password = url.password().map(decoded).transpose()?;
        let host = decoded(url.host_str().unwrap_or_default())?.trim_matches(['[', ']']).to_owned();
        let is_host = |b: u8| b.is_ascii_alphanumeric() || b".-_:".contains(&b);
        if host.is_empty() || !host.bytes().all(is_host) {
            return Err(invalid("it names no host"));
        }
        let database = match url.path().trim_matches('/') {
            "" => 0,
            number => {
                number.parse().ok().filter(|number| *number >= 0).ok_or_else(|| invalid("a database is a number"))?
            }
        };
        let (mut prefix, mut durability) = ("piton".to_owned(), RedisDurability::Full);
        for (name, value) in url.query_pairs() {
            match &*name {
                "prefix" => prefix = value.into_owned(),
                "durability" => {
                    durability =
                        RedisDurability::named(&value).ok_or_else(|| invalid("durability is full, second or none"))?;
                }
                _ => return Err(invalid(&format!("it has the unknown parameter {name:?}"))),
            }
        }
        // Braces would move the hash tag.
        let is_plain = |b: u8| b.is_ascii_alphanumeric() || b"-._".contains(&b);
        if prefix.is_empty() || prefix.len() > 100 || !prefix.bytes().all(is_plain) {
            return Err(invalid("a prefix has up to 100 letters, digits and -._"));
        }
        let (port, is_secure) = (url.port().unwrap_or(PORT), url.scheme() == "rediss");
        Ok(Self { host, port, is_secure, user, password, database, prefix, durability })
    }

    /// Whether the URL itself has a password.
    pub fn has_password(&self) -> bool {
        self.password.is_some()
    }

    /// The same with a password that was found elsewhere.
    #[must_use]
    pub fn with_password(mut self, password: impl Into<String>) -> Self {
        self.password = Some(password.into());
        self
    }

    /// The URL for people: without the password, and with what the store outlives.
    pub fn shown(&self) -> String {
        let scheme = if self.is_secure { "rediss" } else { "redis" };
        let user = self.user.as_ref().map_or(String::new(), |user| format!("{user}@"));
        let host = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        let port = if self.port == PORT { String::new() } else { format!(":{}", self.port) };
        let durability = match self.durability {
            RedisDurability::Full => String::new(),
            less => format!("&durability={}", less.name()),
        };
        format!("{scheme}://{user}{host}{port}/{}?prefix={}{durability}", self.database, self.prefix)
    }

    /// What to connect to.
    pub(super) fn info(&self) -> Result<ConnectionInfo, StoreError> {
        let (host, port) = (self.host.clone(), self.port);
        let address = match self.is_secure {
            true => ConnectionAddr::TcpTls { host, port, insecure: false, tls_params: None },
            false => ConnectionAddr::Tcp(host, port),
        };
        let mut settings = RedisConnectionInfo::default().set_db(self.database);
        if let Some(user) = &self.user {
            settings = settings.set_username(user);
        }
        if let Some(password) = &self.password {
            settings = settings.set_password(password);
        }
        let info = address.into_connection_info();
        let info = info.map_err(|_| StoreError::Invalid { what: self.shown(), detail: "no address".to_owned() })?;
        Ok(info.set_redis_settings(settings))
    }

    /// The password, so that it can be hidden wherever it turns up.
    pub(super) fn hide(&self, text: &str) -> String {
        match self.password.as_deref() {
            None | Some("") => text.to_owned(),
            Some(password) => text.replace(password, "…"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_taken_apart() {
        let url = RedisUrl::parse("rediss://me:p%40ss+@cache.example:6390/3?prefix=team&durability=second").unwrap();
        assert_eq!((url.host.as_str(), url.port, url.database, url.is_secure), ("cache.example", 6390, 3, true));
        assert_eq!((url.user.as_deref(), url.password.as_deref()), (Some("me"), Some("p@ss+")));
        assert_eq!(url.shown(), "rediss://me@cache.example:6390/3?prefix=team&durability=second");
        assert!(!format!("{url:?}").contains("p@ss"));
        let url = RedisUrl::parse("redis://:secret@[::1]").unwrap();
        assert_eq!((url.shown().as_str(), url.user.as_deref()), ("redis://[::1]/0?prefix=piton", None));
        let again = RedisUrl::parse(&url.shown()).unwrap();
        assert_eq!((again.shown(), again.has_password()), (url.shown(), false));
    }

    /// Promise 22, and no error tells the password.
    #[test]
    fn wrong_urls_are_refused_without_their_password() {
        for url in [
            "redis:secret@host",
            "redis://me:secret@host:port/0",
            "redis://:secret@/0",
            "redis://:secret@host/x",
            "redis://:secret@host/-1",
            "redis://:secret@host/0?prefix=",
            "redis://:secret@host/0?prefix={a}",
            "redis://:secret@host/0?prefix=../x",
            "redis://:secret@host/0?prefix=a%00b",
            "redis://:secret@host/0?prefix=a%0Ab",
            "redis://:secret@host/0?prefix=*",
            "redis://:secret@host/0?durability=some",
            "redis://:secret@host/0?insecure",
        ] {
            let error = RedisUrl::parse(url).expect_err(url).to_string();
            assert!(!error.contains("secret") && error.contains("redis://HOST/DATABASE"), "{error}");
        }
    }
}
