//! Objects in a Redis. Every call is one script, which the server carries out as one step.
//!
//! A script whose answer is lost is an error, and the caller looks what became of it; reading is repeated once.

mod durability;
mod scripts;
mod url;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use piton_store::{Driver, Store, StoreError};
use piton_types::Durability;
use redis::aio::{ConnectionManager, ConnectionManagerConfig};
use redis::{Client, ErrorKind, FromRedisValue, RedisError, Script, ServerErrorKind};

pub use durability::RedisDurability;
pub use url::RedisUrl;

use crate::objects::{Listed, Object, Objects, Part, Version, check_name};
use crate::store::ObjectStore;

/// How long to wait for a connection.
const TO_CONNECT: Duration = Duration::from_secs(5);

/// How long to wait for an answer.
const UNANSWERED: Duration = Duration::from_secs(30);

/// How many names one script lists: so long others wait.
const PAGE: usize = 500;

/// Objects in a Redis.
pub struct RedisObjects {
    url: RedisUrl,
    connection: ConnectionManager,
    /// What the keys of the store begin with, its hash tag.
    tag: String,
}

impl std::fmt::Debug for RedisObjects {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("RedisObjects").field(&self.url).finish()
    }
}

/// What an error of the server or of the connection means.
fn failed(error: &RedisError, url: &RedisUrl) -> StoreError {
    let what = url.shown();
    let detail = url.hide(&error.to_string());
    match error.kind() {
        ErrorKind::AuthenticationFailed | ErrorKind::Server(ServerErrorKind::NoPerm) => {
            StoreError::Denied { what, detail }
        }
        ErrorKind::Server(ServerErrorKind::ReadOnly) => StoreError::ReadOnly { what },
        ErrorKind::Server(ServerErrorKind::Moved | ServerErrorKind::Ask | ServerErrorKind::CrossSlot) => {
            let detail = format!("this node of the cluster doesn't have the prefix; name the one that does ({detail})");
            StoreError::Invalid { what, detail }
        }
        _ if matches!(error.code(), Some("NOAUTH" | "WRONGPASS")) => StoreError::Denied { what, detail },
        _ if matches!(error.code(), Some("OOM" | "MISCONF")) => StoreError::Full { what, detail },
        ErrorKind::UnexpectedReturnType | ErrorKind::Parse => StoreError::corrupt(what, detail),
        _ => StoreError::Unavailable { detail: format!("{what}: {detail}") },
    }
}

impl RedisObjects {
    /// Connects to the server, and looks whether it keeps what the URL asks for.
    pub async fn connect(url: RedisUrl) -> Result<Self, StoreError> {
        let client = Client::open(url.info()?).map_err(|error| failed(&error, &url))?;
        let config = ConnectionManagerConfig::new()
            .set_connection_timeout(Some(TO_CONNECT))
            .set_response_timeout(Some(UNANSWERED))
            .set_number_of_retries(2)
            .set_min_delay(Duration::from_millis(20))
            .set_max_delay(Duration::from_secs(1));
        let connection = ConnectionManager::new_with_config(client, config).await;
        let mut connection = connection.map_err(|error| failed(&error, &url))?;
        durability::check(&mut connection, &url).await?;
        Ok(Self { tag: format!("{{{}}}", url.prefix), url, connection })
    }

    /// Carries a script out. `KEYS` are those of the store, and that of an object if one is named.
    async fn run<T: FromRedisValue>(
        &self,
        script: &Script,
        name: Option<&str>,
        arguments: &[&[u8]],
    ) -> Result<T, RedisError> {
        let mut run = script.prepare_invoke();
        for key in ["names", "meta", "count"] {
            run.key(format!("{}:{key}", self.tag));
        }
        if let Some(name) = name {
            run.key(format!("{}:o:{name}", self.tag)).arg(name);
        }
        arguments.iter().for_each(|argument| {
            run.arg(*argument);
        });
        run.invoke_async(&mut self.connection.clone()).await
    }

    /// A change, which is sent once.
    async fn change(&self, script: &Script, name: &str, arguments: &[&[u8]]) -> Result<bool, StoreError> {
        check_name(name)?;
        let changed: i64 = self.run(script, Some(name), arguments).await.map_err(|error| failed(&error, &self.url))?;
        Ok(changed == 1)
    }

    /// Reads. A connection that broke since the last call says so only now, so it is tried once more.
    async fn read<T: FromRedisValue>(
        &self,
        script: &Script,
        name: Option<&str>,
        arguments: &[&[u8]],
    ) -> Result<T, StoreError> {
        let read = match self.run(script, name, arguments).await {
            Err(error) if error.is_connection_dropped() => self.run(script, name, arguments).await,
            read => read,
        };
        read.map_err(|error| failed(&error, &self.url))
    }

    /// The version and the size that a name's meta says.
    fn meta(&self, name: &str, meta: &str) -> Result<(Version, u64), StoreError> {
        let parts = meta.split_once(' ').and_then(|(version, size)| Some((version.to_owned(), size.parse().ok()?)));
        let (version, size) = parts.ok_or_else(|| StoreError::corrupt(name, "the server's record of it isn't one"))?;
        Ok((Version(version), size))
    }
}

#[async_trait]
impl Objects for RedisObjects {
    async fn create(&self, name: &str, content: Bytes, _: Durability) -> Result<bool, StoreError> {
        self.change(&scripts::CREATE, name, &[&content]).await
    }

    async fn get(&self, name: &str, part: Part) -> Result<Option<Object>, StoreError> {
        check_name(name)?;
        let (from, to) = match &part {
            Part::Whole => ("0".to_owned(), "-1".to_owned()),
            Part::Range(range) if range.is_empty() => (String::new(), String::new()),
            Part::Range(range) => (range.start.to_string(), (range.end - 1).to_string()),
            Part::Last(0) => (String::new(), String::new()),
            Part::Last(count) => (format!("-{count}"), "-1".to_owned()),
        };
        let found: Option<(String, Vec<u8>)> =
            self.read(&scripts::GET, Some(name), &[from.as_bytes(), to.as_bytes()]).await?;
        let Some((meta, bytes)) = found else { return Ok(None) };
        let (version, size) = self.meta(name, &meta)?;
        let expected = match part {
            Part::Range(range) if range.is_empty() => 0,
            part => {
                let within = part.within(size);
                within.end - within.start
            }
        };
        if bytes.len() as u64 != expected {
            return Err(StoreError::corrupt(name, "the server has less of it than it says"));
        }
        Ok(Some(Object { bytes: bytes.into(), version, size }))
    }

    async fn list(&self, folder: &str, after: Option<&str>, limit: usize) -> Result<Vec<Listed>, StoreError> {
        let prefix = if folder.is_empty() { String::new() } else { format!("{folder}/") };
        let mut from = format!("[{prefix}{}", after.unwrap_or_default());
        let (mut listed, most) = (Vec::new(), PAGE.to_string());
        // Folders and objects are sorted by different endings, but no list that is cut has both.
        while !from.is_empty() && listed.len() < limit {
            let found: Vec<String> =
                self.read(&scripts::LIST, None, &[prefix.as_bytes(), from.as_bytes(), most.as_bytes()]).await?;
            let mut found = found.into_iter();
            from = found.next().unwrap_or_default();
            while let (Some(name), Some(meta)) = (found.next(), found.next()) {
                if after.is_some_and(|after| *name <= *after) {
                    continue;
                }
                let (version, size) = match meta.is_empty() {
                    true => (None, None),
                    false => self.meta(&name, &meta).map(|(version, size)| (Some(version), Some(size)))?,
                };
                listed.push(Listed { name, size, version });
            }
        }
        listed.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        listed.truncate(limit);
        Ok(listed)
    }

    async fn replace(&self, name: &str, new: Bytes, version: &Version, _: Durability) -> Result<bool, StoreError> {
        self.change(&scripts::REPLACE, name, &[&new, version.0.as_bytes()]).await
    }

    async fn delete(&self, name: &str, version: Option<&Version>, _: Durability) -> Result<bool, StoreError> {
        let version = version.map_or("", |version| &version.0);
        self.change(&scripts::DELETE, name, &[version.as_bytes()]).await
    }

    fn is_persistent(&self) -> bool {
        true
    }

    fn is_remote(&self) -> bool {
        true
    }

    fn url(&self) -> String {
        self.url.shown()
    }
}

/// Opens `redis://…` or `rediss://…`.
#[derive(Debug, Clone)]
pub struct RedisDriver {
    /// With TLS.
    pub secure: bool,
    /// Make a store that isn't there.
    pub create: bool,
    /// The password, unless the URL has one.
    pub password: Option<Secret>,
}

/// A password.
#[derive(Clone)]
pub struct Secret(pub String);

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret")
    }
}

#[async_trait]
impl Driver for RedisDriver {
    async fn open(&self, location: &str) -> Result<Arc<dyn Store>, StoreError> {
        let scheme = if self.secure { "rediss" } else { "redis" };
        let mut url = RedisUrl::parse(&format!("{scheme}:{location}"))?;
        if let (Some(password), false) = (&self.password, url.has_password()) {
            url = url.with_password(&password.0);
        }
        Ok(Arc::new(ObjectStore::open(Arc::new(RedisObjects::connect(url).await?), self.create).await?))
    }
}
