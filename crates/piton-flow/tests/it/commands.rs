//! Commands: arguments stay arguments, failures are failures, and no program outlives its parent.

use piton_flow::FlowError;
use piton_types::Value;

use crate::support::{inputs, run_yaml};

fn document(command: &str) -> String {
    format!(
        "
nodes:
  - {{id: in, data: {{type: start, variables: [{{variable: x, type: string}}]}}}}
  - {{id: do, data: {{type: command, {command}}}}}
  - {{id: out, data: {{type: end, outputs: [
      {{variable: out, value_selector: [do, stdout]}},
      {{variable: err, value_selector: [do, stderr]}},
      {{variable: code, value_selector: [do, exit_code]}}]}}}}
edges: [{{source: in, target: do}}, {{source: do, target: out}}]
"
    )
}

#[tokio::test]
async fn an_argument_stays_one_whatever_is_in_it() {
    let document = document("command: [printf, '[%s]', '{{#in.x#}}', 'a {{ in.x }} b', '*', '$HOME']");
    for evil in ["; rm -rf /", "$(reboot)", "a b  c", "`x`", "\"'", "{{ 1 }}", "--", "ü\n"] {
        let outputs = run_yaml(&document, inputs([("x", evil.into())])).await.unwrap();
        assert_eq!(outputs["out"], Value::from(format!("[{evil}][a {evil} b][*][$HOME]")));
        assert_eq!(outputs["code"], Value::from(0));
    }
}

#[tokio::test]
async fn a_bad_exit_fails_the_node_unless_allowed() {
    let script = "[sh, -c, 'echo out; echo one >&2; echo two >&2; exit 3']";
    let ended = run_yaml(&document(&format!("command: {script}")), inputs([])).await;
    let Err(FlowError::Node { node, message }) = ended else { panic!("{ended:?}") };
    assert_eq!((node.as_str(), message.as_str()), ("do", r#""sh" ended with 3: two"#));

    let outputs = run_yaml(&document(&format!("command: {script}, allow_failure: true")), inputs([])).await.unwrap();
    assert_eq!(outputs, inputs([("out", "out\n".into()), ("err", "one\ntwo\n".into()), ("code", 3.into())]));
}

#[tokio::test]
async fn odd_programs() {
    let error =
        |command: &'static str| async move { run_yaml(&document(command), inputs([])).await.unwrap_err().to_string() };
    assert!(error("command: [/no/such/program]").await.contains("can't be run"));
    assert!(error("command: [cat, '{{#in.gone#}}']").await.contains("Variable not found: in.gone"));
    assert!(error("command: [sh, -c, 'kill -9 $$']").await.contains("ended with 137"));
    assert!(error("command: [head, -c, '20000000', /dev/zero]").await.contains("more than 16777216 bytes"));
    let outputs = run_yaml(&document("command: [printf, '\\377']"), inputs([])).await.unwrap();
    assert_eq!(outputs["out"], Value::Bytes(vec![255]), "what is no text stays as it is");
    // More than a pipe holds, on both at once.
    let both = "command: [sh, -c, 'head -c 300000 /dev/zero >&2; head -c 300000 /dev/zero']";
    let outputs = run_yaml(&document(both), inputs([])).await.unwrap();
    assert_eq!(outputs["out"].as_str().map(str::len), Some(300_000));
}

/// A thread that forked may end long before its process: the child must live on.
#[cfg(target_os = "linux")]
#[test]
fn a_program_outlives_the_thread_that_asked_for_it() {
    use std::time::Duration;

    let (sender, receiver) = std::sync::mpsc::channel();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let handle = runtime.handle().clone();
    std::thread::spawn(move || {
        // This thread polls the run once, which starts the program, and is gone before it ends.
        let document = document("command: [sh, -c, 'sleep 0.5; echo alive']");
        let mut task = Box::pin(async move { run_yaml(&document, inputs([])).await });
        let first = handle.block_on(async { tokio::time::timeout(Duration::from_millis(100), &mut task).await });
        assert!(first.is_err());
        let rest = handle.spawn(task);
        sender.send(rest).unwrap();
    })
    .join()
    .unwrap();
    let rest = receiver.recv().unwrap();
    assert_eq!(runtime.block_on(rest).unwrap().unwrap()["out"], Value::from("alive\n"));
}

/// Run by the test below in a process of its own, and killed there.
#[cfg(target_os = "linux")]
#[tokio::test]
#[ignore = "a part of a_program_dies_with_its_parent"]
async fn a_parent_that_waits() {
    let file = std::env::var("PITON_TEST_PID_FILE").unwrap();
    let document = document("command: [sh, -c, 'echo $$ > \"$0\"; exec sleep 60', '{{#in.x#}}']");
    run_yaml(&document, inputs([("x", file.into())])).await.unwrap();
}

#[cfg(target_os = "linux")]
#[test]
fn a_program_dies_with_its_parent() {
    use std::time::{Duration, Instant};

    let wait_for = |what: &str, done: &dyn Fn() -> bool| {
        let start = Instant::now();
        while !done() {
            assert!(start.elapsed() < Duration::from_secs(30), "{what}");
            std::thread::sleep(Duration::from_millis(10));
        }
    };
    let file = tempfile::NamedTempFile::new().unwrap();
    let mut parent = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "commands::a_parent_that_waits", "--ignored"])
        .env("PITON_TEST_PID_FILE", file.path())
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let read = || std::fs::read_to_string(file.path()).unwrap();
    wait_for("the program starts", &|| read().ends_with('\n'));
    let proc = format!("/proc/{}/stat", read().trim());
    let lives = || std::fs::read_to_string(&proc).is_ok_and(|stat| !stat.contains(") Z "));
    assert!(lives());
    parent.kill().unwrap();
    parent.wait().unwrap();
    wait_for("the program dies", &|| !lives());
}
