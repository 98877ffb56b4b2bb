//! What may be reached, and how much may come back.

use std::net::IpAddr;
use std::time::Duration;

use url::{Host, Url};

use super::address::reserved;
use super::error::NetError;

/// What the network may be used for. The default reaches the public internet and nothing else.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct NetPolicy {
    /// Whether addresses that aren't public (loopback, link-local, private, …) may be reached.
    pub private: bool,
    /// Hosts that may be reached at whatever address they have: what the user configured himself, such
    /// as a model on his own machine. A host without its port.
    pub trusted: Vec<String>,
    /// The same for one port of a host.
    pub trusted_ports: Vec<(String, u16)>,
    /// If there are any, only these hosts may be reached: `example.com`, or `.example.com` for it and
    /// everything below it.
    pub allowed: Vec<String>,
    /// Hosts that may not be reached, in the same form. They win over all others.
    pub denied: Vec<String>,
    /// How many redirects are followed.
    pub max_redirects: usize,
    /// How many bytes a body may have, unpacked.
    pub max_body: u64,
    /// How long a request may take, its body included.
    pub timeout: Duration,
    /// How long connecting may take.
    pub connect_timeout: Duration,
    /// A proxy for everything. It then looks up the names, so that only addresses written into URLs are
    /// checked here; the proxy must check the rest. Without one no proxy is used, whatever the
    /// environment says.
    pub proxy: Option<String>,
    /// Certificates (DER) of authorities that are trusted beside the system's.
    pub roots: Vec<Vec<u8>>,
}

impl Default for NetPolicy {
    fn default() -> Self {
        Self {
            private: false,
            trusted: Vec::new(),
            trusted_ports: Vec::new(),
            allowed: Vec::new(),
            denied: Vec::new(),
            max_redirects: 5,
            max_body: 16 << 20,
            timeout: Duration::from_secs(60),
            connect_timeout: Duration::from_secs(10),
            proxy: None,
            roots: Vec::new(),
        }
    }
}

impl NetPolicy {
    /// The public internet only.
    pub fn public() -> Self {
        Self::default()
    }

    /// Everything, private networks and this machine included.
    pub fn open() -> Self {
        Self { private: true, ..Self::default() }
    }

    /// With one more host that may be reached at whatever address it has.
    #[must_use]
    pub fn trusting(mut self, host: impl Into<String>) -> Self {
        self.trusted.push(plain(&host.into()));
        self
    }

    /// With the host of this URL trusted at the port of it, and refused at others; a text that isn't a URL changes nothing.
    #[must_use]
    pub fn trusting_url(mut self, url: &str) -> Self {
        let url = Url::parse(url).ok();
        let port = url.as_ref().and_then(|url| Some((plain(url.host_str()?), url.port_or_known_default()?)));
        self.trusted_ports.extend(port);
        self
    }

    /// Whether a URL may be asked for, as far as that can be said before its name is looked up.
    pub(super) fn check_url(&self, url: &Url) -> Result<(), NetError> {
        if !matches!(url.scheme(), "http" | "https") {
            return Err(NetError::Url(format!("the scheme {:?} is not http or https", url.scheme())));
        }
        let host = url.host().ok_or_else(|| NetError::Url("it has no host".to_owned()))?;
        let name = plain(&host.to_string());
        self.check_name(&name)?;
        self.check_port(&name, url.port_or_known_default())?;
        let address = match host {
            Host::Ipv4(address) => IpAddr::V4(address),
            Host::Ipv6(address) => IpAddr::V6(address),
            Host::Domain(_) => return Ok(()),
        };
        self.check_address(&name, address)
    }

    fn check_name(&self, host: &str) -> Result<(), NetError> {
        let listed = |list: &[String]| list.iter().any(|pattern| matches(pattern, host));
        let refused = listed(&self.denied) || !self.allowed.is_empty() && !listed(&self.allowed);
        if refused { Err(NetError::HostDenied { host: host.to_owned() }) } else { Ok(()) }
    }

    /// A host that is trusted at some ports alone isn't reached at others: what its name leads to isn't checked.
    fn check_port(&self, host: &str, port: Option<u16>) -> Result<(), NetError> {
        let mut ports =
            self.trusted_ports.iter().filter(|(trusted, _)| trusted == host).map(|(_, port)| *port).peekable();
        let everywhere = self.private || self.trusted.iter().any(|trusted| plain(trusted) == host);
        if everywhere || ports.peek().is_none() || ports.any(|trusted| Some(trusted) == port) {
            return Ok(());
        }
        let port = port.map_or_else(String::new, |port| format!(":{port}"));
        Err(NetError::HostDenied { host: format!("{host}{port}") })
    }

    pub(super) fn check_address(&self, host: &str, address: IpAddr) -> Result<(), NetError> {
        let is = |trusted: &str| plain(trusted) == plain(host);
        let trusted = self.trusted.iter().any(|host| is(host)) || self.trusted_ports.iter().any(|(host, _)| is(host));
        if self.private || trusted {
            return Ok(());
        }
        match reserved(address) {
            Some(kind) => Err(NetError::AddressRefused { host: host.to_owned(), address, kind }),
            None => Ok(()),
        }
    }
}

/// A host as it is compared: without brackets, the dot of the root, and case.
fn plain(host: &str) -> String {
    host.trim_start_matches('[').trim_end_matches(']').trim_end_matches('.').to_ascii_lowercase()
}

fn matches(pattern: &str, host: &str) -> bool {
    let pattern = pattern.to_ascii_lowercase();
    match pattern.strip_prefix('.') {
        Some(domain) => host == domain || host.strip_suffix(domain).is_some_and(|rest| rest.ends_with('.')),
        None => host == pattern,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(policy: &NetPolicy, url: &str) -> Result<(), NetError> {
        policy.check_url(&Url::parse(url).unwrap())
    }

    /// `reachable` opens the port that it names.
    #[test]
    fn a_trusted_url_opens_its_port_and_no_other() {
        let policy = NetPolicy::public().trusting_url("http://127.0.0.1:8080/v1").trusting_url("https://model.local");
        for url in ["http://127.0.0.1:8080/x", "https://model.local/x", "https://model.local:443/x"] {
            assert!(check(&policy, url).is_ok(), "{url}");
        }
        for url in ["http://127.0.0.1/", "http://127.0.0.1:2375/", "http://model.local/", "https://model.local:22/"] {
            assert!(check(&policy, url).is_err(), "{url}");
        }
        assert!(
            check(&policy.trusting("127.0.0.1"), "http://127.0.0.1:2375/").is_ok(),
            "a host without a port is all of it"
        );
    }

    /// Promise 23: odd encodings.
    #[test]
    fn an_address_is_refused_in_every_spelling() {
        for url in [
            "http://127.0.0.1/",
            "http://127.1/",
            "http://2130706433/",
            "http://0x7f.0.0.1/",
            "http://0x7f000001/",
            "http://0177.0.0.01/",
            "http://017700000001/",
            "http://127.0.0.1.:80/",
            "http://１２７.0.0.1/",
            "http://[::1]/",
            "http://[::ffff:127.0.0.1]/",
            "http://[::ffff:7f00:1]/",
            "http://[64:ff9b::127.0.0.1]/",
            "http://0/",
            "http://169.254.169.254/latest/meta-data/",
            "http://0xa9fea9fe/",
            "http://user:password@10.0.0.1/",
            "https://8.8.8.8@192.168.0.1/",
        ] {
            let refused = check(&NetPolicy::public(), url).unwrap_err();
            assert!(matches!(refused, NetError::AddressRefused { .. }), "{url}: {refused}");
            assert!(check(&NetPolicy::open(), url).is_ok(), "{url}: the control is refused too");
        }
        assert!(check(&NetPolicy::public(), "http://8.8.8.8/").is_ok());
    }

    #[test]
    fn only_http_is_spoken() {
        for url in ["file:///etc/passwd", "ftp://example.com/", "gopher://example.com/", "data:text/plain,x"] {
            assert!(matches!(check(&NetPolicy::open(), url), Err(NetError::Url(_))), "{url}");
        }
    }

    #[test]
    fn hosts_are_allowed_and_denied_by_name() {
        let mut policy = NetPolicy::public();
        policy.allowed = vec![".example.com".to_owned(), "other.org".to_owned()];
        policy.denied = vec!["bad.example.com".to_owned()];
        for good in ["http://example.com/", "https://a.b.EXAMPLE.com./", "http://other.org/"] {
            assert!(check(&policy, good).is_ok(), "{good}");
        }
        for bad in ["http://badexample.com/", "http://bad.example.com/", "http://x.other.org/", "http://8.8.8.8/"] {
            assert!(matches!(check(&policy, bad), Err(NetError::HostDenied { .. })), "{bad}");
        }
    }

    #[test]
    fn a_trusted_host_is_trusted_alone() {
        let policy = NetPolicy::public().trusting_url("http://127.0.0.1:11434/v1");
        assert!(check(&policy, "http://127.0.0.1:11434/").is_ok());
        assert!(check(&policy, "http://127.0.0.2:11434/").is_err());
    }
}
