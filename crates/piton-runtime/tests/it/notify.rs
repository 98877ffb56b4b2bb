//! R6: the hooks are told, and a hook that fails, hangs or panics fails no run.

use std::io::{Read as _, Write as _};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use piton_runtime::notify::{CommandHook, Notice, Notifier, Notify, NotifyError, NotifyOn, Webhook};
use piton_runtime::{Failure, Listener, OpenRun, Run, RunError, SystemClock, Wait, Waits, answer};
use piton_types::{RunStatus, Value};

use crate::support::{history, memory, open, process, run_id};

const ALL: NotifyOn = NotifyOn { failed: true, waiting: true, completed: true };

fn notifier(hooks: Vec<Arc<dyn Notify>>) -> Notifier {
    Notifier::with_limit(hooks, ALL, Arc::new(SystemClock::new()), Duration::from_millis(300))
}

/// Fails a run and completes it at the second try, with these hooks.
async fn run_with(hooks: Vec<Arc<dyn Notify>>) -> (u64, u64) {
    let store = memory();
    let notifier = notifier(hooks);
    let told = Arc::new(Mutex::new(0));
    let next = {
        let told = Arc::clone(&told);
        Listener::new(move |_| *told.lock().unwrap() += 1)
    };
    let events = notifier.listener(next);
    let run = Run::open(&process(&store), OpenRun { events: events.clone(), ..open() }).await.unwrap();
    run.fail(Failure::new("network", "nobody answers")).await.unwrap();
    drop(run);
    let run = Run::open(&process(&store), OpenRun { events, ..open() }).await.unwrap();
    run.complete(Value::from("done")).await.unwrap();
    drop(run);
    assert_eq!(history(&store).await.state.status(), RunStatus::Completed);
    assert_eq!(*told.lock().unwrap(), 4, "the other listener hears everything");
    let done = notifier.finish().await;
    (done.delivered, done.failed)
}

#[tokio::test]
async fn a_program_gets_the_notice_as_json() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("told");
    let script = format!("cat >> {0}; echo >> {0}", file.display());
    assert_eq!(run_with(vec![Arc::new(CommandHook::new("sh", ["-c", &script]))]).await, (2, 0));
    let told = std::fs::read_to_string(file).unwrap();
    let lines: Vec<Value> = told.lines().map(|line| piton_types::from_json(line.as_bytes()).unwrap()).collect();
    let field = |n: usize, name: &str| lines[n].field(name).unwrap().clone();
    assert_eq!((field(0, "event"), field(0, "message")), (Value::from("failed"), Value::from("nobody answers")));
    assert_eq!((field(1, "event"), field(1, "outputs")), (Value::from("completed"), Value::from("done")));
    assert_eq!(field(0, "run"), Value::from("a-run"));
}

/// Remembers what it was told.
#[derive(Default)]
struct Remembers(Mutex<Vec<String>>);

#[async_trait]
impl Notify for Remembers {
    fn name(&self) -> String {
        "remembers".to_owned()
    }

    async fn notify(&self, notice: &Notice) -> Result<(), NotifyError> {
        self.0.lock().unwrap().push(format!("{} {}", notice.event, notice.message));
        Ok(())
    }
}

/// By default what a person has to do something about: a failure, a question.
#[tokio::test]
async fn a_question_is_told_and_a_success_is_not() {
    let store = memory();
    let hook = Arc::new(Remembers::default());
    let notifier = Notifier::new(vec![Arc::clone(&hook) as _], NotifyOn::default(), Arc::new(SystemClock::new()));
    let events = notifier.listener(Listener::default());
    let open = OpenRun { events, waits: Waits::Leave, ..open() };
    let mut run = Run::open(&process(&store), open.clone()).await.unwrap();
    let waiting = run.wait_for::<bool>("approval", Wait::new("Publish it?")).await;
    assert!(matches!(waiting, Err(RunError::Waiting { .. })), "{waiting:?}");
    drop(run);
    answer(&process(&store), &run_id(), None, true, "Ada").await.unwrap();
    let mut run = Run::open(&process(&store), open).await.unwrap();
    assert!(run.wait_for::<bool>("approval", Wait::new("Publish it?")).await.unwrap());
    run.complete(()).await.unwrap();
    drop(run);
    assert_eq!(notifier.finish().await.delivered, 1);
    assert_eq!(*hook.0.lock().unwrap(), ["waiting approval: Publish it?"]);
}

/// Answers each request with one of these, and returns what was asked.
fn server(answers: &'static [&'static str]) -> (String, std::thread::JoinHandle<Vec<String>>) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/hook?x=1", listener.local_addr().unwrap());
    let thread = std::thread::spawn(move || {
        let mut asked = Vec::new();
        for answer in answers {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = Vec::new();
            let mut byte = [0];
            // The body ends with the object that it is.
            while !request.ends_with(b"}") && stream.read(&mut byte).unwrap() == 1 {
                request.push(byte[0]);
            }
            stream.write_all(answer.as_bytes()).unwrap();
            asked.push(String::from_utf8(request).unwrap());
        }
        asked
    });
    (url, thread)
}

#[tokio::test]
async fn a_web_address_gets_the_notice_as_json() {
    let (url, thread) = server(&["HTTP/1.1 204 No Content\r\n\r\n", "HTTP/1.0 500 Oops\r\n\r\n"]);
    assert_eq!(run_with(vec![Arc::new(Webhook::new(&url).unwrap())]).await, (1, 1));
    let asked = thread.join().unwrap();
    assert!(asked[0].starts_with("POST /hook?x=1 HTTP/1.1\r\nHost: 127.0.0.1:"), "{}", asked[0]);
    let (_, body) = asked[0].split_once("\r\n\r\n").unwrap();
    let length = asked[0].lines().find_map(|line| line.strip_prefix("Content-Length: ")).unwrap();
    assert_eq!(length.parse::<usize>().unwrap(), body.len());
    assert_eq!(piton_types::from_json(body.as_bytes()).unwrap().field("event"), Some(&Value::from("failed")));
}

struct Hangs;

#[async_trait]
impl Notify for Hangs {
    fn name(&self) -> String {
        "hangs".to_owned()
    }

    async fn notify(&self, _notice: &Notice) -> Result<(), NotifyError> {
        std::future::pending().await
    }
}

struct Panics;

#[async_trait]
impl Notify for Panics {
    fn name(&self) -> String {
        "panics".to_owned()
    }

    async fn notify(&self, _notice: &Notice) -> Result<(), NotifyError> {
        panic!("on purpose")
    }
}

#[tokio::test]
async fn a_hook_that_fails_never_fails_the_run() {
    let nobody = Webhook::new("http://127.0.0.1:1/").unwrap();
    let (garbage, thread) = server(&["SSH-2.0\r\n", "HTTP/1.1 999999 x\r\n"]);
    let hooks: Vec<Arc<dyn Notify>> = vec![
        Arc::new(CommandHook::new("/nonexistent/program", ["x"])),
        Arc::new(CommandHook::new("false", [] as [&str; 0])),
        Arc::new(nobody),
        Arc::new(Webhook::new(&garbage).unwrap()),
        Arc::new(Hangs),
        Arc::new(CommandHook::new("true", [] as [&str; 0])),
    ];
    assert_eq!(run_with(hooks).await, (2, 10));
    thread.join().unwrap();
    assert_eq!(run_with(vec![Arc::new(Panics)]).await, (0, 0));
}

/// A slow hook and a fast run: what doesn't fit the queue is thrown away and counted, and nothing waits.
#[tokio::test]
async fn a_full_queue_is_counted_and_holds_nothing_up() {
    let store = memory();
    let notifier =
        Notifier::with_limit(vec![Arc::new(Hangs)], ALL, Arc::new(SystemClock::new()), Duration::from_millis(1));
    let events = notifier.listener(Listener::default());
    for n in 0..80 {
        let id = Some(format!("run-{n}").parse().unwrap());
        let run = Run::open(&process(&store), OpenRun { id, events: events.clone(), ..open() }).await.unwrap();
        run.complete(()).await.unwrap();
    }
    drop(events);
    let done = notifier.finish().await;
    assert_eq!(done.failed + done.dropped, 80);
    assert!(done.dropped > 0, "{done:?}");
}
