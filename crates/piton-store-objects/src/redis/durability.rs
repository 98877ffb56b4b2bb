//! What a server is set to: what its acknowledgements survive, and whether it throws keys away.

use std::collections::HashMap;

use piton_store::StoreError;
use redis::aio::ConnectionManager;

use super::RedisUrl;

/// What an acknowledged commit survives, as the user wants it or accepts it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RedisDurability {
    /// Perhaps not the end of the server.
    None,
    /// The end of the server; of a power cut's last second perhaps not all.
    Second,
    /// A power cut.
    Full,
}

impl RedisDurability {
    pub(super) fn named(name: &str) -> Option<Self> {
        [Self::None, Self::Second, Self::Full].into_iter().find(|durability| durability.name() == name)
    }

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Second => "second",
            Self::Full => "full",
        }
    }
}

/// Refuses a server that keeps less than the URL asks for, or that throws keys away when it is full.
pub(super) async fn check(connection: &mut ConnectionManager, url: &RedisUrl) -> Result<(), StoreError> {
    let info: String = redis::cmd("INFO").query_async(connection).await.map_err(|error| super::failed(&error, url))?;
    let info: HashMap<&str, &str> = info.lines().filter_map(|line| line.split_once(':')).collect();
    let invalid = |detail: String| StoreError::Invalid { what: url.shown(), detail };
    let policy = info.get("maxmemory_policy").copied().unwrap_or("noeviction");
    if policy.starts_with("allkeys") && info.get("maxmemory").copied() != Some("0") {
        return Err(invalid(format!(
            "the server throws away any key when it is full (maxmemory-policy {policy}); set it to noeviction"
        )));
    }
    let (kept, how) = match info.get("aof_enabled").copied() {
        Some("1") => {
            // Where it may not be asked, the less is assumed.
            let set: Result<Vec<String>, _> =
                redis::cmd("CONFIG").arg("GET").arg("appendfsync").query_async(connection).await;
            let sync = set.ok().and_then(|set| set.into_iter().nth(1)).unwrap_or_else(|| "not told".to_owned());
            let kept = if sync == "always" { RedisDurability::Full } else { RedisDurability::Second };
            (kept, format!("appendonly yes, appendfsync {sync}"))
        }
        _ => (RedisDurability::None, "appendonly no".to_owned()),
    };
    if kept < url.durability {
        let accepted = kept.name();
        let lost = match kept {
            RedisDurability::None => "what it acknowledges may be gone when it ends",
            _ => "what it acknowledged in the last second may be gone after a power cut",
        };
        return Err(invalid(format!(
            "the server is set to {how}: {lost}. Set appendonly yes and appendfsync always, or accept it by \
             durability={accepted} in the URL"
        )));
    }
    Ok(())
}
