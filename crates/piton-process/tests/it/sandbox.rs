//! Promise 24: what a sandboxed program can't do, by both means, each with the control that the same
//! program can do it outside.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use piton_process::{Ended, Job, Means, ProcessError, Sandbox, Unavailable, run};

const PYTHON: &str = "/usr/bin/python3";

fn python(script: &str) -> Job {
    let mut job = Job::new(PYTHON).arguments(["-I", "-c", script]);
    job.limits.time = Some(Duration::from_secs(20));
    job.limits.memory = 256 << 20;
    job
}

fn shut_in(mut job: Job, means: Means) -> Job {
    job.sandbox = Some(Sandbox::for_code().by(means));
    job
}

fn said(ended: &Ended) -> String {
    format!("{}: {}{}", ended.exit_code, String::from_utf8_lossy(&ended.stdout), String::from_utf8_lossy(&ended.stderr))
}

/// The script works outside, and fails with `error` inside, by both means.
async fn refused(script: &str, error: &str) {
    let outside = run(python(script)).await.unwrap();
    assert_eq!(outside.exit_code, 0, "the control fails: {}", said(&outside));
    for means in [Means::Bubblewrap, Means::Kernel] {
        let inside = run(shut_in(python(script), means)).await.unwrap();
        assert_ne!(inside.exit_code, 0, "{means:?}: {}", said(&inside));
        assert!(said(&inside).contains(error), "{means:?}: {}", said(&inside));
    }
}

/// A file that everybody may read, in a folder that everybody may enter.
fn canary(folder: &Path) -> String {
    fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).unwrap();
    let path = folder.join("canary");
    fs::write(&path, "the canary sings").unwrap();
    path.to_str().unwrap().to_owned()
}

#[tokio::test]
async fn code_that_keeps_to_itself_runs() {
    let script = "import json, hashlib, threading, sys
t = threading.Thread(target=lambda: print(json.dumps({'sum': sum(range(10))})))
t.start(); t.join(); print(sys.stdin.read())";
    for means in [Means::Bubblewrap, Means::Kernel, Means::Any] {
        let mut job = shut_in(python(script), means);
        job.input = b"given".to_vec();
        let ended = run(job).await.unwrap();
        assert_eq!(said(&ended), "0: {\"sum\": 45}\ngiven\n", "{means:?}");
    }
}

#[tokio::test]
async fn files_that_are_not_given_can_not_be_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = canary(folder.path());
    refused(&format!("print(open({path:?}).read())"), "Error").await;
    refused("print(open('/etc/passwd').read())", "Error").await;
    refused("import os; print(len(os.listdir('/home'))); print(len(os.listdir('/etc')))", "Error").await;
}

#[tokio::test]
async fn the_same_file_can_be_read_when_it_is_given() {
    let folder = tempfile::tempdir().unwrap();
    let path = canary(folder.path());
    for means in [Means::Bubblewrap, Means::Kernel] {
        let mut job = python(&format!("print(open({path:?}).read())"));
        job.sandbox = Some(Sandbox::for_code().reading(&path).by(means));
        assert_eq!(said(&run(job).await.unwrap()), "0: the canary sings\n", "{means:?}");
    }
}

#[tokio::test]
async fn the_processes_of_others_can_not_be_seen_or_signalled() {
    refused("print(open('/proc/self/environ', 'rb').read())", "Error").await;
    refused("print(open('/proc/1/status').read())", "Error").await;
    refused("import os; assert len(os.listdir('/proc')) > 3", "Error").await;
    // Signal 0 asks whether one may signal; our own test process is the target outside and inside.
    refused(&format!("import os; os.kill({}, 0)", std::process::id()), "Error").await;
}

#[tokio::test]
async fn there_is_no_network_and_no_other_socket() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    refused(&format!("import socket; socket.create_connection(('127.0.0.1', {port}))"), "Error").await;
    refused("import socket; socket.socket(socket.AF_UNIX)", "Error").await;
    refused("import socket; socket.socketpair()", "Error").await;
}

#[tokio::test]
async fn nothing_can_be_written_but_the_outputs() {
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let path = folder.path().join("made");
    refused(&format!("open({:?}, 'w').write('x')", path.to_str().unwrap()), "Error").await;
    refused(&format!("import os; os.chmod({:?}, 0o700)", path.to_str().unwrap()), "Error").await;
    refused("import tempfile; tempfile.NamedTemporaryFile()", "Error").await;
}

#[tokio::test]
async fn a_folder_that_is_given_can_be_written() {
    for means in [Means::Bubblewrap, Means::Kernel] {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
        let path = folder.path().join("made");
        let mut job = python(&format!("open({:?}, 'w').write('x')", path.to_str().unwrap()));
        job.sandbox = Some(Sandbox::for_code().writing(folder.path()).by(means));
        assert_eq!(said(&run(job).await.unwrap()), "0: ", "{means:?}");
        assert_eq!(fs::read_to_string(path).unwrap(), "x");
    }
}

#[tokio::test]
async fn no_process_can_be_started() {
    refused("import os; os.waitpid(os.fork() or os._exit(0), 0)", "Error").await;
    refused("import subprocess; subprocess.run(['/bin/true'], check=True)", "Error").await;
}

/// The control is small: a real fork bomb outside would take the machine with it.
#[tokio::test]
async fn a_fork_bomb_does_not_go_off() {
    let bomb = "import os
while True:
    os.fork()";
    for means in [Means::Bubblewrap, Means::Kernel] {
        let ended = run(shut_in(python(bomb), means)).await.unwrap();
        assert!(said(&ended).contains("Error") && ended.exit_code == 1, "{means:?}: {}", said(&ended));
    }
}

#[tokio::test]
async fn memory_runs_out_for_the_program_and_not_for_us() {
    refused("x = bytearray(512 << 20)", "MemoryError").await;
    refused("x = []\nfor i in range(64): x.append(bytearray(8 << 20))", "MemoryError").await;
}

/// Fills 300 MB of memory without addressing as much at a time.
const BESIDE_THE_LIMIT: [&str; 4] = [
    "import os, shutil
shutil.rmtree('/dev/shm/piton-test', ignore_errors=True)
os.mkdir('/dev/shm/piton-test')
try:
    for n in range(10): open(f'/dev/shm/piton-test/{n}', 'wb').write(bytes(30 << 20))
finally: shutil.rmtree('/dev/shm/piton-test')",
    "import os
for n in range(10): os.write(os.memfd_create('x'), bytes(30 << 20))",
    "import ctypes
c = ctypes.CDLL(None, use_errno=True)
c.shmat.restype = ctypes.c_void_p
for n in range(10):
    i = c.shmget(0, 30 << 20, 0o1600)
    if i < 0: raise OSError(ctypes.get_errno(), 'shmget')
    at = c.shmat(i, None, 0)
    c.shmctl(i, 0, None)
    ctypes.memset(at, 1, 30 << 20)
    c.shmdt(ctypes.c_void_p(at))",
    "import ctypes, os
c = ctypes.CDLL(None, use_errno=True)
user = os.getuid()
if user:
    c.unshare(0x10000000)
    open('/proc/self/uid_map', 'w').write(f'0 {user} 1')
c.unshare(0x20000)
if c.mount(b'none', b'/', None, 0x40000 | 0x4000, None) or c.mount(b'tmpfs', b'/mnt', b'tmpfs', 0, None):
    raise OSError(ctypes.get_errno(), 'mount')
for n in range(10): open(f'/mnt/{n}', 'wb').write(bytes(30 << 20))",
];

#[tokio::test]
async fn memory_that_no_process_addresses_runs_out_too() {
    for script in BESIDE_THE_LIMIT {
        refused(script, "Error").await;
        let mut job = python(script);
        job.sandbox = Some(Sandbox::for_command());
        let inside = run(job).await.unwrap();
        assert!(inside.exit_code == 1 && said(&inside).contains("Error"), "{script}: {}", said(&inside));
    }
    // A little can be shared, as semaphores between processes are.
    let shared = "import multiprocessing, os
lock = multiprocessing.Lock()
open('/dev/shm/x', 'wb').write(bytes(32 << 20))
print(os.listdir('/dev/shm'))";
    let mut job = python(shared);
    job.sandbox = Some(Sandbox::for_command());
    assert_eq!(said(&run(job).await.unwrap()), "0: ['x']\n");
}

#[tokio::test]
async fn a_gigabyte_of_output_is_cut() {
    let script = "import sys
for _ in range(1 << 10): sys.stdout.buffer.write(bytes(1 << 20))";
    for means in [Means::Bubblewrap, Means::Kernel] {
        let mut job = shut_in(python(script), means);
        job.limits.output = 1 << 20;
        let error = run(job).await.unwrap_err();
        assert!(matches!(error, ProcessError::TooMuchOutput { .. }), "{means:?}: {error}");
    }
}

#[tokio::test]
async fn a_gigabyte_of_file_is_cut_where_writing_is_allowed() {
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let script = |name: &str| {
        let path = folder.path().join(name);
        format!("f = open({:?}, 'wb')\nfor _ in range(8): f.write(bytes(1 << 20))\nf.close()", path.to_str().unwrap())
    };
    assert_eq!(run(python(&script("outside"))).await.unwrap().exit_code, 0, "the control");
    for means in [Means::Bubblewrap, Means::Kernel] {
        let name = format!("{means:?}");
        let mut job = python(&script(&name));
        job.limits.file = 4 << 20;
        job.sandbox = Some(Sandbox::for_code().writing(folder.path()).by(means));
        assert_ne!(run(job).await.unwrap().exit_code, 0, "{means:?}");
        assert!(fs::metadata(folder.path().join(name)).unwrap().len() <= 4 << 20);
    }
}

#[tokio::test]
async fn time_runs_out_though_signals_are_ignored() {
    let script = "import signal, time
for s in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGALRM): signal.signal(s, signal.SIG_IGN)
while True: time.sleep(1)";
    for means in [Means::Bubblewrap, Means::Kernel] {
        let mut job = shut_in(python(script), means);
        job.limits.time = Some(Duration::from_secs(1));
        let error = run(job).await.unwrap_err();
        assert!(matches!(error, ProcessError::TimedOut { .. }), "{means:?}: {error}");
    }
}

#[tokio::test]
async fn our_environment_is_kept_from_it() {
    let script = "import os; assert 'CARGO_MANIFEST_DIR' in os.environ";
    refused(script, "AssertionError").await;
}

#[tokio::test]
async fn a_command_may_start_others_but_not_without_end() {
    let command = |script: &str| {
        let mut job = Job::new("/bin/sh").arguments(["-c", script]);
        job.environment.insert("PATH".into(), "/usr/bin:/bin".into());
        job.limits.time = Some(Duration::from_secs(20));
        job.limits.processes = 16;
        job.sandbox = Some(Sandbox::for_command());
        job
    };
    let ended = run(command("echo one | cat; ls /proc | grep -c '^[0-9]'")).await.unwrap();
    let text = String::from_utf8_lossy(&ended.stdout).into_owned();
    let (first, seen) = text.trim().split_once('\n').unwrap();
    assert_eq!(first, "one");
    assert!(seen.parse::<usize>().unwrap() < 10, "it sees the processes of others: {seen}");

    // A bounded bomb, so that the control is harmless: 40 sleepers at once.
    let bomb = "i=0; while [ $i -lt 40 ]; do sleep 2 & i=$((i+1)); done; wait; echo all";
    let mut outside = command(bomb);
    outside.sandbox = None;
    assert_eq!(run(outside).await.unwrap().stdout, b"all\n", "the control");
    // Beside another sandbox with as many of the same user's: each has its own limit.
    let beside = "i=0; while [ $i -lt 12 ]; do sleep 3 & i=$((i+1)); done; wait; echo all";
    let (inside, neighbour, third) = tokio::join!(run(command(bomb)), run(command(beside)), run(command(beside)));
    for ended in [neighbour.unwrap(), third.unwrap()] {
        assert_eq!(ended.stdout, b"all\n", "{}", said(&ended));
    }
    let inside = inside.unwrap();
    assert!(!inside.stdout.starts_with(b"all"), "{}", said(&inside));
    assert!(String::from_utf8_lossy(&inside.stderr).contains("fork"), "{}", said(&inside));

    for script in
        ["cat /etc/passwd", "exec 3<>/dev/tcp/127.0.0.1/1 || cat /sys/class/net/eth0/address", "touch /usr/x /made"]
    {
        let ended = run(command(script)).await.unwrap();
        assert_ne!(ended.exit_code, 0, "{script}: {}", said(&ended));
    }
}

/// What a command leaves running dies with its process namespace, even in a session of its own.
#[tokio::test]
async fn the_grandchildren_of_a_command_die_with_it() {
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let script = format!(
        "setsid sh -c 'while true; do date +%s%N > {}/alive; sleep 0.05; done' & sleep 1000",
        folder.path().display()
    );
    let mut job = Job::new("/bin/sh").arguments(["-c", &script]);
    job.environment.insert("PATH".into(), "/usr/bin:/bin".into());
    job.limits.time = Some(Duration::from_secs(1));
    job.sandbox = Some(Sandbox::for_command().writing(folder.path()));
    assert!(matches!(run(job).await, Err(ProcessError::TimedOut { .. })));
    tokio::time::sleep(Duration::from_millis(300)).await;
    let before = fs::read(folder.path().join("alive")).expect("it did run");
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(fs::read(folder.path().join("alive")).unwrap(), before, "it lives on");
}

#[tokio::test]
async fn a_missing_sandbox_is_a_refusal_and_not_a_run() {
    let folder = tempfile::tempdir().unwrap();
    let made = folder.path().join("made");
    let mut job = python(&format!("open({:?}, 'w')", made.to_str().unwrap()));
    let missing = Sandbox { bubblewrap: "/no/bwrap".into(), ..Sandbox::for_code().writing(folder.path()) };
    job.sandbox = Some(missing.clone().by(Means::Bubblewrap));
    let error = run(job.clone()).await.unwrap_err();
    assert!(matches!(error, ProcessError::Unavailable(Unavailable::Bubblewrap(_))), "{error}");
    assert!(error.to_string().contains("not run"), "{error}");
    job.sandbox = Some(Sandbox { processes: true, ..missing });
    let error = run(job).await.unwrap_err();
    assert!(matches!(error, ProcessError::Unavailable(Unavailable::Processes(_))), "{error}");
    assert!(!made.exists());
}

/// A place without any means: inside our own kernel sandbox, which has neither Landlock's calls nor
/// namespaces. The inner program is this very test binary, running the test below.
#[tokio::test]
async fn without_any_means_nothing_runs() {
    let binary = std::env::current_exe().unwrap();
    for means in [Means::Kernel, Means::Any] {
        let mut job =
            Job::new(&binary).arguments(["--exact", "sandbox::probe", "--ignored", "--nocapture", "--test-threads=1"]);
        job.environment.insert("MEANS".into(), format!("{means:?}").into());
        job.limits.memory = 4 << 30;
        job.limits.time = Some(Duration::from_secs(20));
        // The folder of the build need not be readable by others.
        job.sandbox = Some(Sandbox::for_code().reading(&binary).by(Means::Kernel));
        let ended = run(job).await;
        let Ok(ended) = ended else { panic!("{ended:?}") };
        assert!(said(&ended).contains("REFUSED"), "{}", said(&ended));
    }
}

#[test]
#[ignore = "the inner half of the test above; outside it has nothing to prove"]
fn probe() {
    // Without I/O: in there tokio couldn't make the socket pair that its signals need.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let means = if std::env::var("MEANS").as_deref() == Ok("Kernel") { Means::Kernel } else { Means::Any };
    let mut job = Job::new("/usr/bin/true");
    job.sandbox = Some(Sandbox::for_code().by(means));
    match runtime.block_on(run(job)) {
        Err(ProcessError::Unavailable(Unavailable::Kernel(_) | Unavailable::Nothing { .. })) => println!("REFUSED"),
        other => println!("{other:?}"),
    }
}
