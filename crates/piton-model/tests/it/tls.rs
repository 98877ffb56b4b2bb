//! HTTPS: certificates count.

use std::sync::Arc;

use http::Method;
use piton_model::net::{Client, NetError, NetPolicy, Request};
use rcgen::{CertifiedKey, generate_simple_self_signed};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;

#[tokio::test]
async fn a_certificate_must_be_signed_by_somebody_we_trust() {
    let CertifiedKey { cert, signing_key } = generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
    let key = PrivateKeyDer::try_from(signing_key.serialize_der()).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![cert.der().clone()], key)
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            // The client that doesn't trust us breaks off here.
            let Ok(mut stream) = acceptor.accept(stream).await else { continue };
            let mut buffer = [0; 4096];
            let _ = stream.read(&mut buffer).await;
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nsecure").await;
            let _ = stream.shutdown().await;
        }
    });
    let request = || Request::new(Method::GET, format!("https://{address}/"));
    let error = Client::new(NetPolicy::open()).unwrap().send(request()).await.unwrap_err();
    assert!(matches!(&error, NetError::Connect { reason, .. } if reason.contains("certificate")), "{error}");
    let mut policy = NetPolicy::open();
    policy.roots = vec![cert.der().to_vec()];
    let mut response = Client::new(policy).unwrap().send(request()).await.unwrap();
    assert_eq!(response.bytes().await.unwrap(), b"secure");
}
