//! What these tests share.

pub(crate) use piton_testing::{Line, id};

/// Runs a test's future.
/// Without the driver for sockets, which wakes itself by a `write`: a test that lets writes fail would hit that one too.
pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_time().build().unwrap().block_on(future)
}

/// A server that denies everything, and repeats in its answer what it was asked with.
#[cfg(feature = "cloud")]
pub(crate) fn echo_server() -> u16 {
    use std::io::{Read as _, Write as _};
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut asked = vec![0; 1 << 14];
            let Ok(length) = stream.read(&mut asked) else { continue };
            let asked = String::from_utf8_lossy(&asked[..length]);
            let asked = asked.lines().filter(|line| line.to_ascii_lowercase().starts_with("authorization"));
            let body = format!("<Error><Why>{}</Why></Error>", asked.collect::<String>());
            let head = format!("HTTP/1.1 403 Forbidden\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len());
            drop(stream.write_all(format!("{head}{body}").as_bytes()));
        }
    });
    port
}
