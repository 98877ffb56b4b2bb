//! A PostgreSQL server of a test's own, on a free port of loopback, and a pooler in front of it. Both end with the process that
//! started them, however that ends, and so does their folder.

use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long a server may take to start. After a crash it waits for what the old one left to end.
const TO_START: Duration = Duration::from_secs(60);

/// The user that a test's server knows, and its database.
pub const USER: &str = "piton";

/// That user's password.
pub const PASSWORD: &str = "sw0rdf+sh";

/// A running server.
#[derive(Debug)]
pub struct Server {
    folder: PathBuf,
    programs: PathBuf,
    port: u16,
    running: Mutex<Option<Child>>,
    connections: u32,
    _guard: Guard,
}

impl Server {
    /// Starts one with an empty database.
    ///
    /// # Panics
    /// If PostgreSQL isn't installed, or doesn't start.
    pub fn start() -> Self {
        Self::start_for(300)
    }

    /// The same for so many connections at most.
    ///
    /// # Panics
    /// As above.
    pub fn start_for(connections: u32) -> Self {
        let (folder, guard) = guarded_folder();
        let programs = programs();
        std::fs::write(folder.join("password"), PASSWORD).expect("the folder is ours");
        let mut initdb = as_nobody(&programs.join("initdb"));
        initdb.args([
            "--no-sync",
            "--no-locale",
            "--encoding=UTF8",
            "--auth=scram-sha-256",
            "--username",
            USER,
            "--pwfile",
        ]);
        succeed(initdb.arg(folder.join("password")).arg("-D").arg(folder.join("data")));
        let running = Mutex::new(None);
        let server = Self { folder, programs, port: free_port(), running, connections, _guard: guard };
        server.go();
        succeed(&mut server.psql(&format!("CREATE DATABASE {USER}"), "postgres"));
        server
    }

    /// The URL of a store in a schema of this server, with the password.
    pub fn url(&self, schema: &str) -> String {
        self.url_at(self.port, schema)
    }

    /// The same by another port: that of a pooler or of a proxy.
    pub fn url_at(&self, port: u16, schema: &str) -> String {
        format!("postgres://{USER}:{}@127.0.0.1:{port}/{USER}?schema={schema}", PASSWORD.replace('+', "%2B"))
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
        let deadline = Instant::now() + TO_START;
        loop {
            let mut child = self.spawn();
            loop {
                if let Some(ending) = child.try_wait().expect("it is our child") {
                    // What a killed server left may still be there for a moment.
                    let said = std::fs::read_to_string(self.folder.join("log")).unwrap_or_default();
                    assert!(Instant::now() < deadline, "PostgreSQL doesn't start: {ending}\n{said}");
                    std::thread::sleep(Duration::from_millis(100));
                    break;
                }
                let mut ready = Command::new(self.programs.join("pg_isready"));
                ready.args(["-q", "-h", "127.0.0.1", "-p", &self.port.to_string()]);
                if ready.status().expect("it is installed").success() {
                    *self.running.lock().unwrap_or_else(PoisonError::into_inner) = Some(child);
                    return;
                }
                assert!(Instant::now() < deadline, "PostgreSQL doesn't get ready");
                std::thread::sleep(Duration::from_millis(50));
            }
        }
    }

    /// Starts it after [`kill`](Self::kill) and ends it again, so many milliseconds into its recovery.
    ///
    /// # Panics
    /// If PostgreSQL doesn't start.
    pub fn recover_and_kill(&self, after: u64) {
        let mut child = self.spawn();
        std::thread::sleep(Duration::from_millis(after));
        child.kill().expect("it is our child");
        child.wait().expect("it is our child");
    }

    /// Copies what is on its disk, once it was killed. [`fall_back`](Self::fall_back) brings that back: what it acknowledged since is lost,
    /// as with a standby that takes over and lacks the last of it.
    ///
    /// # Panics
    /// If there is no room.
    pub fn remember(&self) {
        succeed(Command::new("cp").arg("-a").arg(self.folder.join("data")).arg(self.folder.join("before")));
    }

    /// See [`remember`](Self::remember); it must have been killed.
    ///
    /// # Panics
    /// If nothing was remembered.
    pub fn fall_back(&self) {
        std::fs::remove_dir_all(self.folder.join("data")).expect("the folder is ours");
        std::fs::rename(self.folder.join("before"), self.folder.join("data")).expect("it was remembered");
    }

    /// Gives a folder to the user that the server runs as.
    ///
    /// # Panics
    /// If that isn't allowed.
    pub fn give(&self, folder: &Path) {
        if let Some((user, group)) = nobody() {
            chown(folder, Some(user), Some(group)).expect("root may do that");
        }
    }

    fn spawn(&self) -> Child {
        as_nobody(&self.programs.join("postgres"))
            .arg("-D")
            .arg(self.folder.join("data"))
            .args(["-c", "listen_addresses=127.0.0.1", "-c", &format!("max_connections={}", self.connections)])
            .args(["-c", "shared_buffers=32MB", "-c", "restart_after_crash=on", "-p", &self.port.to_string(), "-k"])
            .arg(&self.folder)
            .stdout(log(&self.folder))
            .stderr(log(&self.folder))
            .spawn()
            .expect("PostgreSQL starts")
    }

    /// Carries out statements, and gives what `psql` prints.
    ///
    /// # Panics
    /// If one fails.
    pub fn sql(&self, statements: &str) -> String {
        succeed(&mut self.psql(statements, USER))
    }

    fn psql(&self, statements: &str, database: &str) -> Command {
        let mut psql = Command::new(self.programs.join("psql"));
        psql.args(["-X", "-A", "-t", "-q", "-v", "ON_ERROR_STOP=1", "-h", "127.0.0.1", "-p", &self.port.to_string()])
            .args(["-U", USER, "-d", database, "-c", statements])
            .env("PGPASSWORD", PASSWORD);
        psql
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(mut running) = self.running.lock().unwrap_or_else(PoisonError::into_inner).take() {
            let _ = running.kill();
            let _ = running.wait();
        }
    }
}

/// A pooler in transaction mode in front of a server.
#[derive(Debug)]
pub struct Pooler {
    port: u16,
    running: Child,
    _guard: Guard,
}

impl Pooler {
    /// Starts `pgbouncer`.
    ///
    /// # Panics
    /// If it isn't installed, or doesn't start.
    pub fn start(server: &Server) -> Self {
        let (folder, guard) = guarded_folder();
        let port = free_port();
        // Two connections for all clients: each statement may be on another one.
        let settings = format!(
            "[databases]\n* = host=127.0.0.1 port={} user={USER} password={PASSWORD}\n[pgbouncer]\nlisten_addr = 127.0.0.1\n\
             listen_port = {port}\nunix_socket_dir = {}\nauth_type = any\npool_mode = transaction\ndefault_pool_size = 3\n\
             max_client_conn = 500\nmax_prepared_statements = 0\n",
            server.port(),
            folder.display(),
        );
        // Older versions don't know the last setting, and do what it says.
        let program = ["/usr/sbin/pgbouncer", "/usr/bin/pgbouncer"].into_iter().find(|path| Path::new(path).exists());
        let program = Path::new(program.expect("pgbouncer is installed: apt-get install pgbouncer"));
        let version = Command::new(program).arg("--version").output().expect("it is installed").stdout;
        let version = String::from_utf8_lossy(&version).into_owned();
        let is_old = version.contains(" 1.1") || version.contains(" 1.20");
        let settings = if is_old { settings.replace("max_prepared_statements = 0\n", "") } else { settings };
        std::fs::write(folder.join("pgbouncer.ini"), settings).expect("the folder is ours");
        let running = as_nobody(program)
            .arg(folder.join("pgbouncer.ini"))
            .stdout(log(&folder))
            .stderr(log(&folder))
            .spawn()
            .expect("pgbouncer starts");
        std::fs::write(folder.join("pid"), running.id().to_string()).expect("the folder is ours");
        let deadline = Instant::now() + TO_START;
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            let said = || std::fs::read_to_string(folder.join("log")).unwrap_or_default();
            assert!(Instant::now() < deadline, "pgbouncer doesn't start: {}", said());
            std::thread::sleep(Duration::from_millis(20));
        }
        Self { port, running, _guard: guard }
    }

    /// Where it listens.
    pub fn port(&self) -> u16 {
        self.port
    }
}

impl Drop for Pooler {
    fn drop(&mut self) {
        let _ = self.running.kill();
        let _ = self.running.wait();
    }
}

/// A process that waits until this one ends, stops what is noted in a folder and deletes it. It waits for the end of its input,
/// which the system closes however this process ends.
#[derive(Debug)]
pub(crate) struct Guard(Child);

impl Drop for Guard {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

pub(crate) fn guarded_folder() -> (PathBuf, Guard) {
    let folder = crate::scratch::Scratch::in_memory();
    let path = folder.path().to_owned();
    folder.keep();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("the folder is ours");
    if let Some((user, group)) = nobody() {
        chown(&path, Some(user), Some(group)).expect("root may do that");
    }
    let wait = "cat >/dev/null; for noted in \"$1/data/postmaster.pid\" \"$1/pid\"; do \
                if [ -f \"$noted\" ]; then kill -QUIT \"$(head -n 1 \"$noted\")\" 2>/dev/null; fi; done; \
                sleep 1; rm -rf \"$1\"";
    let guard = Command::new("sh")
        .args(["-c", wait, "guard"])
        .arg(&path)
        .process_group(0)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("there is a shell");
    (path, Guard(guard))
}

fn log(folder: &Path) -> std::fs::File {
    std::fs::File::options().create(true).append(true).open(folder.join("log")).expect("the folder is ours")
}

/// The folder of PostgreSQL's programs, of the newest version that is installed.
fn programs() -> PathBuf {
    let all = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut found: Vec<_> = all
        .map(|entry| entry.path().join("bin"))
        .filter(|programs| programs.join("initdb").exists() && programs.join("postgres").exists())
        .collect();
    found.sort();
    found.pop().expect("PostgreSQL is installed: apt-get install postgresql")
}

/// A user other than root, which PostgreSQL refuses; nothing if this process isn't root's.
fn nobody() -> Option<(u32, u32)> {
    if !rustix::process::geteuid().is_root() {
        return None;
    }
    let number = |option| {
        let output = Command::new("id").args([option, "nobody"]).output().expect("there is `id`");
        String::from_utf8_lossy(&output.stdout).trim().parse().expect("there is a user nobody")
    };
    Some((number("-u"), number("-g")))
}

/// A program that runs as such a user.
fn as_nobody(program: &Path) -> Command {
    let mut command = match nobody() {
        Some((user, group)) => {
            let mut command = Command::new("setpriv");
            command.args([format!("--reuid={user}"), format!("--regid={group}")]).arg("--clear-groups").arg(program);
            command
        }
        None => Command::new(program),
    };
    command.current_dir("/").stdin(Stdio::null()).process_group(0);
    command
}

/// A port of loopback that was free just now.
pub fn free_port() -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("loopback has a free port");
    listener.local_addr().expect("it is bound").port()
}

fn succeed(command: &mut Command) -> String {
    let output = command.output().expect("it is installed");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {said}");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}
