//! A proxy on loopback that passes bytes on until it is told to misbehave.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Passes what comes from clients on to a server, and its answers back.
#[derive(Debug)]
pub struct Proxy {
    port: u16,
    faults: Arc<Faults>,
}

#[derive(Debug)]
struct Faults {
    server: u16,
    /// How many pieces pass until a connection is cut; `usize::MAX` for never.
    left: AtomicUsize,
    is_down: AtomicBool,
    delay: AtomicU64,
    rewrites: Mutex<Vec<(&'static str, &'static str)>>,
}

impl Proxy {
    /// Starts one in front of the server at this port of loopback.
    ///
    /// # Panics
    /// If loopback has no free port.
    pub fn start(server: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("loopback has a free port");
        let port = listener.local_addr().expect("it is bound").port();
        let faults = Arc::new(Faults {
            server,
            left: AtomicUsize::new(usize::MAX),
            is_down: AtomicBool::new(false),
            delay: AtomicU64::new(0),
            rewrites: Mutex::default(),
        });
        let shared = Arc::clone(&faults);
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let faults = Arc::clone(&shared);
                std::thread::spawn(move || faults.connect(&client));
            }
        });
        Self { port, faults }
    }

    /// Where it listens.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// After so many more pieces, in whichever direction, the connection is cut instead of passing the next one: once.
    pub fn cut_after(&self, pieces: usize) {
        self.faults.left.store(pieces, Ordering::SeqCst);
    }

    /// Whether a connection was cut since.
    pub fn has_cut(&self) -> bool {
        self.faults.left.load(Ordering::SeqCst) == usize::MAX
    }

    /// Whether the server can't be reached. Connections that are open break with their next piece.
    pub fn set_down(&self, is_down: bool) {
        self.faults.is_down.store(is_down, Ordering::SeqCst);
    }

    /// How long each piece takes.
    pub fn set_delay(&self, delay: Duration) {
        self.faults.delay.store(u64::try_from(delay.as_millis()).expect("it is short"), Ordering::SeqCst);
    }

    /// From now on clients seem to say `new` where they say `old`, which is as long.
    ///
    /// # Panics
    /// If it isn't.
    pub fn rewrite(&self, old: &'static str, new: &'static str) {
        assert_eq!(old.len(), new.len(), "lengths are said elsewhere");
        self.faults.rewrites.lock().unwrap_or_else(PoisonError::into_inner).push((old, new));
    }
}

impl Faults {
    fn connect(self: Arc<Self>, client: &TcpStream) {
        if self.is_down.load(Ordering::SeqCst) {
            return;
        }
        let Ok(server) = TcpStream::connect(("127.0.0.1", self.server)) else { return };
        let (Ok(to_server), Ok(to_client)) = (server.try_clone(), client.try_clone()) else { return };
        for end in [client, &server] {
            drop(end.set_nodelay(true));
        }
        std::thread::scope(|scope| {
            scope.spawn(|| self.pass(client, &to_server, true));
            self.pass(&server, &to_client, false);
        });
    }

    fn pass(&self, mut from: &TcpStream, mut to: &TcpStream, from_client: bool) {
        let mut piece = vec![0; 1 << 16];
        while let Ok(length @ 1..) = from.read(&mut piece) {
            let left = |left: usize| if left == usize::MAX { None } else { Some(left.wrapping_sub(1)) };
            // Once: counting on from nothing gives what means never.
            let is_cut = self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, left) == Ok(0);
            if is_cut || self.is_down.load(Ordering::SeqCst) {
                break;
            }
            std::thread::sleep(Duration::from_millis(self.delay.load(Ordering::SeqCst)));
            let mut bytes = piece[..length].to_vec();
            if from_client {
                for (old, new) in &*self.rewrites.lock().unwrap_or_else(PoisonError::into_inner) {
                    for at in 0..(bytes.len() + 1).saturating_sub(old.len()) {
                        let place = &mut bytes[at..at + old.len()];
                        if place == old.as_bytes() {
                            place.copy_from_slice(new.as_bytes());
                        }
                    }
                }
            }
            if to.write_all(&bytes).is_err() {
                break;
            }
        }
        for end in [from, to] {
            drop(end.shutdown(Shutdown::Both));
        }
    }
}
