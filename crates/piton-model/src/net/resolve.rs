//! Looking up names inside the connector: only allowed addresses come out.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use async_trait::async_trait;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};

use super::error::NetError;
use super::policy::NetPolicy;

/// Where the addresses of a name come from.
#[async_trait]
pub trait Resolver: Send + Sync {
    /// The addresses of a name, as they are now.
    async fn resolve(&self, host: &str) -> io::Result<Vec<IpAddr>>;
}

/// The system's resolver.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemResolver;

#[async_trait]
impl Resolver for SystemResolver {
    async fn resolve(&self, host: &str) -> io::Result<Vec<IpAddr>> {
        Ok(tokio::net::lookup_host((host, 0)).await?.map(|address| address.ip()).collect())
    }
}

/// A resolver that hands on what the policy allows, and fails if that is nothing.
pub(super) struct Checked {
    pub(super) resolver: Arc<dyn Resolver>,
    pub(super) policy: Arc<NetPolicy>,
}

impl Resolve for Checked {
    fn resolve(&self, name: Name) -> Resolving {
        let (resolver, policy) = (self.resolver.clone(), self.policy.clone());
        Box::pin(async move {
            let host = name.as_str();
            let lookup = |source| NetError::Lookup { host: host.to_owned(), source };
            let all = resolver.resolve(host).await.map_err(lookup)?;
            let mut refusal = None;
            let allowed: Vec<SocketAddr> = all
                .into_iter()
                .filter_map(|address| match policy.check_address(host, address) {
                    Ok(()) => Some(SocketAddr::new(address, 0)),
                    Err(error) => {
                        refusal = Some(error);
                        None
                    }
                })
                .collect();
            match refusal {
                Some(refusal) if allowed.is_empty() => Err(refusal.into()),
                None if allowed.is_empty() => Err(lookup(io::ErrorKind::NotFound.into()).into()),
                _ => Ok(Box::new(allowed.into_iter()) as Addrs),
            }
        })
    }
}
