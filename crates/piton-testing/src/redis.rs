//! A Redis server of a test's own, on a free port of loopback. It ends with the process that started it, however that
//! ends, and so does its folder.

use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::postgres::{Guard, free_port, guarded_folder};

/// How long it may take to start.
const TO_START: Duration = Duration::from_secs(60);

/// The password that a test's server wants.
pub const PASSWORD: &str = "r3dis+sw0rd";

/// A running server.
#[derive(Debug)]
pub struct RedisServer {
    folder: PathBuf,
    port: u16,
    options: Vec<&'static str>,
    running: Mutex<Option<Child>>,
    _guard: Guard,
}

impl RedisServer {
    /// Starts one that has everything on disk before it answers.
    pub fn durable() -> Self {
        Self::start(&["--appendonly", "yes", "--appendfsync", "always", "--save", ""])
    }

    /// Starts one with these options.
    ///
    /// # Panics
    /// If Redis isn't installed, or doesn't start.
    pub fn start(options: &[&'static str]) -> Self {
        let (folder, guard) = guarded_folder();
        let running = Mutex::new(None);
        let server = Self { folder, port: free_port(), options: options.to_vec(), running, _guard: guard };
        server.go();
        server
    }

    /// The URL of a store, with the password.
    pub fn url(&self, prefix: &str) -> String {
        self.url_at(self.port, prefix)
    }

    /// The same by another port.
    pub fn url_at(&self, port: u16, prefix: &str) -> String {
        format!("redis://:{}@127.0.0.1:{port}/0?prefix={prefix}", PASSWORD.replace('+', "%2B"))
    }

    /// Where it listens.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Ends it without any warning, as a crash does.
    ///
    /// # Panics
    /// If it doesn't run.
    pub fn kill(&self) {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner).take().expect("it runs");
        running.kill().expect("it is our child");
        running.wait().expect("it is our child");
    }

    /// Starts it again after [`kill`](Self::kill).
    ///
    /// # Panics
    /// If it doesn't start.
    pub fn go(&self) {
        let log = std::fs::File::options().create(true).append(true).open(self.folder.join("log"));
        let mut child = Command::new("redis-server")
            .args(["--bind", "127.0.0.1", "--port", &self.port.to_string(), "--requirepass", PASSWORD, "--dir"])
            .arg(&self.folder)
            .arg("--pidfile")
            .arg(self.folder.join("pid"))
            .args(&self.options)
            .stdin(Stdio::null())
            .stdout(log.expect("the folder is ours"))
            .stderr(Stdio::null())
            .spawn()
            .expect("Redis is installed: apt-get install redis-server");
        let deadline = Instant::now() + TO_START;
        // It answers when it has read what it kept.
        while self.command(&["PING"]).is_none_or(|answer| answer != "PONG") {
            let ending = child.try_wait().expect("it is our child");
            let said = || std::fs::read_to_string(self.folder.join("log")).unwrap_or_default();
            assert!(ending.is_none() && Instant::now() < deadline, "Redis doesn't start: {}", said());
            std::thread::sleep(Duration::from_millis(20));
        }
        *self.running.lock().unwrap_or_else(PoisonError::into_inner) = Some(child);
    }

    /// Sends a command, and gives the first line of the answer; `None` if there is none.
    pub fn command(&self, words: &[&str]) -> Option<String> {
        use std::io::{BufRead as _, BufReader, Write as _};
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).ok()?;
        stream.set_read_timeout(Some(TO_START)).ok()?;
        let mut answer = String::new();
        for words in [&["AUTH", PASSWORD][..], words] {
            let mut sent = format!("*{}\r\n", words.len());
            words.iter().for_each(|word| sent.push_str(&format!("${}\r\n{word}\r\n", word.len())));
            stream.write_all(sent.as_bytes()).ok()?;
            answer.clear();
            BufReader::new(stream.try_clone().ok()?).read_line(&mut answer).ok()?;
        }
        Some(answer.trim_end().trim_start_matches(['+', ':', '$']).to_owned())
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        if let Some(mut running) = self.running.lock().unwrap_or_else(PoisonError::into_inner).take() {
            let _ = running.kill();
            let _ = running.wait();
        }
    }
}
