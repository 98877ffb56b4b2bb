//! A web address that the notice is sent to: one HTTP/1.1 POST of JSON, without encryption.
//!
//! For `https` an application brings a client of its own behind [`Notify`]: a whole TLS stack is too much for a
//! crate that otherwise opens no connections.

use async_trait::async_trait;
use piton_types::to_json;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;

use super::{Notice, Notify, NotifyError};

/// The most that is read of an answer's first line.
const STATUS_LINE: u64 = 1024;

/// Posts every notice to an `http` address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Webhook {
    url: String,
    host: String,
    connect: String,
    target: String,
}

impl Webhook {
    /// An address such as `http://127.0.0.1:8080/piton`.
    pub fn new(url: &str) -> Result<Self, NotifyError> {
        let refuse = |detail| NotifyError::Address { url: url.chars().take(200).collect(), detail };
        if url.starts_with("https://") {
            return Err(refuse("https needs a client of the application's own"));
        }
        let rest = url.strip_prefix("http://").ok_or_else(|| refuse("it should begin with http://"))?;
        // What goes into the request must not be able to end a line of it.
        if !url.bytes().all(|b| b.is_ascii_graphic()) {
            return Err(refuse("it has characters that no address has"));
        }
        let (host, target) = match rest.find(['/', '?']) {
            Some(at) if rest[at..].starts_with('?') => (&rest[..at], format!("/{}", &rest[at..])),
            Some(at) => (&rest[..at], rest[at..].to_owned()),
            None => (rest, "/".to_owned()),
        };
        let target = target.split('#').next().unwrap_or_default().to_owned();
        if host.is_empty() || host.contains('@') || host.starts_with(':') {
            return Err(refuse("it should name a host and nothing else"));
        }
        let has_port =
            host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok() && !host.ends_with(']'));
        let connect = if has_port { host.to_owned() } else { format!("{host}:80") };
        Ok(Self { url: url.to_owned(), host: host.to_owned(), connect, target })
    }
}

/// A notice as JSON. What JSON can't say becomes null.
pub(super) fn json(notice: &Notice) -> Result<String, NotifyError> {
    let value = piton_types::to_value(notice).map_err(|error| NotifyError::Other(error.to_string()))?;
    let json = to_json(&value).or_else(|_| {
        let without = Notice { outputs: piton_types::Value::Null, ..notice.clone() };
        to_json(&piton_types::to_value(&without).unwrap_or_default())
    });
    json.map(|json| json.to_string()).map_err(|error| NotifyError::Other(error.to_string()))
}

#[async_trait]
impl Notify for Webhook {
    fn name(&self) -> String {
        format!("webhook {}", self.url)
    }

    async fn notify(&self, notice: &Notice) -> Result<(), NotifyError> {
        let body = json(notice)?;
        let mut stream = TcpStream::connect(&self.connect).await?;
        let head = format!(
            "POST {} HTTP/1.1\r\nHost: {}\r\nUser-Agent: piton\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
            self.target,
            self.host,
            body.len()
        );
        stream.write_all(head.as_bytes()).await?;
        stream.write_all(body.as_bytes()).await?;
        stream.flush().await?;
        let mut line = String::new();
        BufReader::new(stream.take(STATUS_LINE)).read_line(&mut line).await?;
        let status = line.strip_prefix("HTTP/1.").and_then(|rest| rest.split(' ').nth(1));
        match status.and_then(|code| code.trim().parse::<u16>().ok()) {
            Some(200..300) => Ok(()),
            Some(code) => Err(NotifyError::Answer(code.to_string())),
            None => Err(NotifyError::Answer("something that isn't HTTP".to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_taken_apart_or_refused() {
        let hook = |url: &str| Webhook::new(url).map(|hook| (hook.connect, hook.host, hook.target));
        let parts = |connect: &str, host: &str, target: &str| (connect.to_owned(), host.to_owned(), target.to_owned());
        assert_eq!(hook("http://a.example").unwrap(), parts("a.example:80", "a.example", "/"));
        assert_eq!(hook("http://a:81/x?y#z").unwrap(), parts("a:81", "a:81", "/x?y"));
        assert_eq!(hook("http://[::1]?q").unwrap(), parts("[::1]:80", "[::1]", "/?q"));
        assert_eq!(hook("http://[::1]:9/").unwrap(), parts("[::1]:9", "[::1]:9", "/"));
        for bad in [
            "https://a",
            "ftp://a",
            "a",
            "http://",
            "http:///x",
            "http://u:p@a/",
            "http://a/\r\nX: y",
            "http://a b/",
            "http://:80/",
        ] {
            assert!(hook(bad).is_err(), "{bad:?}");
        }
        insta::assert_snapshot!(hook("https://a").unwrap_err(), @r#"the address "https://a" can't be used: https needs a client of the application's own"#);
    }
}
