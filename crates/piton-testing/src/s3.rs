//! An S3 server of a test's own: moto's, on a free port of loopback. It ends with the process that started it, however
//! that ends, and keeps what it has in memory.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::postgres::free_port;

/// How long it may take to start.
const TO_START: Duration = Duration::from_secs(60);

/// The key that tests use, and its secret.
pub const KEY: (&str, &str) = ("AKIAPITONTESTKEY", "s3cret+of/tests");

/// The bucket that is there.
pub const BUCKET: &str = "team-bucket";

/// Its requests are carried out one after the other, as S3 does it for each key: moto itself looks at a condition and
/// writes in two steps. It ends when its input does.
const PROGRAM: &str = r"
import io, os, sys, threading
from werkzeug.serving import run_simple, WSGIRequestHandler
from moto.server import DomainDispatcherApplication, create_backend_app
threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
app = DomainDispatcherApplication(create_backend_app)
lock = threading.Lock()
def one_by_one(environ, start):
    length = int(environ.get('CONTENT_LENGTH') or 0)
    environ['wsgi.input'] = io.BytesIO(environ['wsgi.input'].read(length))
    with lock:
        return [b''.join(app(environ, start))]
class Quiet(WSGIRequestHandler):
    protocol_version = 'HTTP/1.1'
    def log(self, *_): pass
run_simple('127.0.0.1', int(sys.argv[1]), one_by_one, threaded=True, request_handler=Quiet)
";

/// A running server.
#[derive(Debug)]
pub struct S3Server {
    port: u16,
    running: Child,
}

impl S3Server {
    /// Starts one with an empty bucket.
    ///
    /// # Panics
    /// If moto isn't installed, or doesn't start.
    pub fn start() -> Self {
        let port = free_port();
        let running = Command::new("python3")
            .args(["-c", PROGRAM, &port.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("there is Python");
        let mut server = Self { port, running };
        let deadline = Instant::now() + TO_START;
        while server.make_bucket().is_err() {
            let ending = server.running.try_wait().expect("it is our child");
            assert!(
                ending.is_none(),
                "moto ends with {ending:?}: is it installed? python3 -m pip install 'moto[s3,server]'"
            );
            assert!(Instant::now() < deadline, "moto doesn't get ready");
            std::thread::sleep(Duration::from_millis(50));
        }
        server
    }

    fn make_bucket(&self) -> std::io::Result<()> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port))?;
        stream.set_read_timeout(Some(TO_START))?;
        // Any signature will do.
        write!(
            stream,
            "PUT /{BUCKET} HTTP/1.1\r\nHost: 127.0.0.1:{}\r\nContent-Length: 0\r\nConnection: close\r\nAuthorization: \
             AWS4-HMAC-SHA256 Credential={}/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=x\r\n\r\n",
            self.port, KEY.0
        )?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer)?;
        match answer.starts_with(b"HTTP/1.1 200") {
            true => Ok(()),
            false => Err(std::io::Error::other(String::from_utf8_lossy(&answer).into_owned())),
        }
    }

    /// Where it listens.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// What reaches it by a port: its own, or that of a proxy. Named as the environment variables of the usual tools are.
    pub fn settings_at(port: u16) -> Vec<(&'static str, String)> {
        vec![
            ("AWS_ACCESS_KEY_ID", KEY.0.to_owned()),
            ("AWS_SECRET_ACCESS_KEY", KEY.1.to_owned()),
            ("AWS_ENDPOINT_URL", format!("http://127.0.0.1:{port}")),
            ("AWS_REGION", "us-east-1".to_owned()),
        ]
    }
}

impl Drop for S3Server {
    fn drop(&mut self) {
        drop(self.running.stdin.take());
        let _ = self.running.wait();
    }
}
