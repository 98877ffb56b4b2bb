//! Accepting connections, and what is checked before the first: a server that others can reach has TLS, or the operator
//! said in so many words that it needs none.

use std::fs::File;
use std::io::Read as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use piton_app::{App, Failure};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;

use crate::audit::Audit;
use crate::driven::{Marks, take_up};
use crate::gate::{Gate, Peer};
use crate::server::{Door, GRACE, Server};
use crate::tokens::{Role, Tokens};
use crate::{gate, mcp, routes};

/// Connections at once; others wait to be accepted.
const CONNECTIONS: usize = 1024;
/// How long a client may take for its headers, or for its handshake.
const PATIENCE: Duration = Duration::from_secs(10);
/// The most bytes of a request's line and headers.
const HEADERS: usize = 64 << 10;
/// How long answers may take to be sent when the server ends.
const LAST: Duration = Duration::from_millis(100);

/// How a server is reached.
#[derive(Debug, Clone)]
pub struct Options {
    /// Where it listens.
    pub listen: SocketAddr,
    /// Names, beside its address and `localhost`, by which it may be called.
    pub hosts: Vec<String>,
    /// Its certificate and key.
    pub tls: Option<Tls>,
    /// It may be reached by others though it has no TLS.
    pub without_tls: bool,
    /// Models, credentials and limits of the runs that it drives.
    pub config: Option<PathBuf>,
}

/// The files of a certificate.
#[derive(Debug, Clone)]
pub struct Tls {
    /// The chain, PEM.
    pub certificate: PathBuf,
    /// The key, PEM.
    pub key: PathBuf,
}

/// A server that listens.
pub struct Serving {
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    server: Arc<Server>,
    router: Router,
    url: String,
    folder: PathBuf,
}

impl Serving {
    /// Listens. `app` is the folder and its store; what the server has to say goes to the shell of it.
    ///
    /// # Errors
    ///
    /// If others could reach it unprotected, or a file, the address or the store is of no use.
    pub async fn bind(app: &App, options: Options) -> Result<Self, Failure> {
        let is_open = !options.listen.ip().is_loopback();
        if is_open && options.tls.is_none() && !options.without_tls {
            return Err(Failure::refused(format!(
                "others could reach {}, and would send their tokens in clear",
                options.listen
            ))
            .hint(
                "give `--tls-cert FILE --tls-key FILE`, or listen on 127.0.0.1; behind a proxy that has TLS, or in a \
                 network of your own, `--without-tls` says that it needs none.",
            ));
        }
        let tls = options.tls.as_ref().map(acceptor).transpose()?;
        let folder = app.surroundings.state()?.join("server");
        let tokens = Tokens::of(&folder)?;
        let audit = Audit::open(&folder)?;
        let shell = app.shared_shell();
        let app = app.holding(shell);
        let marks = Marks::open(&folder, app.folder())?;
        // The store is opened, or made, now: what is wrong with it is said before anything listens.
        app.hold().await?;
        let listener = TcpListener::bind(options.listen).await.map_err(|error| {
            Failure::fixable(format!("can't listen on {}", options.listen))
                .because(&error)
                .hint("`--listen 127.0.0.1:0` takes a port that is free.")
        })?;
        let address = listener
            .local_addr()
            .map_err(|error| Failure::fixable("the address of the listener can't be found").because(&error))?;
        let gate = Gate::new(address, &options.hosts)?;
        let scheme = if tls.is_some() { "https" } else { "http" };
        let url = match options.hosts.first().filter(|_| address.ip().is_unspecified()) {
            Some(host) => format!("{scheme}://{}", gate::with_port(host, address.port())),
            None => format!("{scheme}://{address}"),
        };
        let door = Door { tokens, gate, is_secure: tls.is_some() };
        let server = Arc::new(Server::new(app, Some(door), audit, Some(marks), options.config));
        let router = mcp::service(routes::router(&server), &server)?;
        Ok(Self { listener, tls, server, router, url, folder })
    }

    /// Where it is reached.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The folder with its tokens and its audit log.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// A link that signs one browser in, with all rights.
    pub fn link(&self) -> Result<String, Failure> {
        Ok(format!("{}/sign-in?code={}", self.url, self.server.door()?.tokens.code(Role::Operate)?))
    }

    /// Serves until `stop` is there. Runs that it drives are stopped in peace then, and can be resumed. Those that a server
    /// before it drove, which was killed, go on.
    pub async fn serve(self, stop: impl Future<Output = ()>) {
        let Self { listener, tls, server, router, .. } = self;
        tokio::spawn(take_up(Arc::clone(&server)));
        let places = Arc::new(Semaphore::new(CONNECTIONS));
        let mut stop = std::pin::pin!(stop);
        loop {
            let Ok(place) = Arc::clone(&places).acquire_owned().await else { break };
            let accepted = tokio::select! {
                biased;
                () = &mut stop => break,
                accepted = listener.accept() => accepted,
            };
            let Ok((stream, peer)) = accepted else {
                // No descriptors are left, most likely: some will be.
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            };
            let (router, server, tls) = (router.clone(), Arc::clone(&server), tls.clone());
            tokio::spawn(async move {
                let _place = place;
                connection(stream, tls, router, server, Peer(peer)).await;
            });
        }
        drop(listener);
        server.drives.stop_all(GRACE).await;
        // What was answered last is on its way.
        tokio::time::sleep(LAST).await;
    }
}

async fn connection(stream: TcpStream, tls: Option<TlsAcceptor>, router: Router, server: Arc<Server>, peer: Peer) {
    let _ = stream.set_nodelay(true);
    match tls {
        None => exchange(stream, router, server, peer).await,
        Some(tls) => {
            if let Ok(Ok(stream)) = tokio::time::timeout(PATIENCE, tls.accept(stream)).await {
                exchange(stream, router, server, peer).await;
            }
        }
    }
}

async fn exchange(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    router: Router,
    server: Arc<Server>,
    peer: Peer,
) {
    let service = service_fn(move |request| {
        let (router, server) = (router.clone(), Arc::clone(&server));
        async move { Ok::<_, std::convert::Infallible>(gate::pass(server, router, request, peer).await) }
    });
    // A client that goes away, or sends what is no HTTP, is no error of ours.
    let _ = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(PATIENCE)
        .max_buf_size(HEADERS)
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

fn acceptor(tls: &Tls) -> Result<TlsAcceptor, Failure> {
    let wrong = |path: &Path, error: &(dyn std::error::Error + 'static)| {
        Failure::fixable(format!("{} is of no use for TLS", path.display())).because(error)
    };
    let read = |path: &Path| {
        let mut bytes = Vec::new();
        match File::open(path).and_then(|mut file| file.read_to_end(&mut bytes)) {
            Ok(_) => Ok(bytes),
            Err(error) => Err(Failure::fixable(format!("can't read {}", path.display())).because(&error)),
        }
    };
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&read(&tls.certificate)?).collect();
    let chain = chain.map_err(|error| wrong(&tls.certificate, &error))?;
    let key = PrivateKeyDer::from_pem_slice(&read(&tls.key)?).map_err(|error| wrong(&tls.key, &error))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, key))
        .map_err(|error| wrong(&tls.certificate, &error))?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}
