//! Python in a sandbox; and what the same code can do without one.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use piton_code::{CodeError, CodeLimits, Python};
use piton_process::{Means, ProcessError, Sandbox, Unavailable};
use piton_types::{Value, from_json, to_json};

fn sandboxed() -> Python {
    Python::default()
}

fn free() -> Python {
    Python { sandbox: None, ..Python::default() }
}

async fn run_in(python: &Python, code: &str, inputs: &str) -> Result<String, CodeError> {
    let limits = CodeLimits { time: Duration::from_secs(20), ..CodeLimits::default() };
    let value = python.run(code, &from_json(inputs.as_bytes()).unwrap(), &limits).await?;
    Ok(to_json(&value).unwrap().to_string())
}

async fn run(code: &str, inputs: &str) -> Result<String, CodeError> {
    run_in(&sandboxed(), code, inputs).await
}

#[tokio::test]
async fn main_is_called_with_the_inputs() {
    let code = "import json\ndef main(a: int, b: float) -> dict:\n    return {'sum': a + b, 'text': json.dumps([a])}";
    assert_eq!(run(code, r#"{"a": 1, "b": 2.5}"#).await.unwrap(), r#"{"sum":3.5,"text":"[1]"}"#);
    assert_eq!(run("def main(inputs): return inputs", r#"{"a":[1,null,"ü"]}"#).await.unwrap(), r#"{"a":[1,null,"ü"]}"#);
    assert_eq!(run("def main(a): return a", r#"{"a": 7}"#).await.unwrap(), "7");
    assert_eq!(run("def main(): print('noise'); return {'quiet': True}", "{}").await.unwrap(), r#"{"quiet":true}"#);
}

#[tokio::test]
async fn errors_say_what_was_raised_and_where() {
    let error = run("def main():\n    x = 1\n    raise ValueError('boom')", "{}").await.unwrap_err();
    assert_eq!(error.to_string(), "ValueError: boom (line 3)");
    assert!(matches!(run("def main(:", "{}").await, Err(CodeError::Syntax(text)) if text.contains("line 1")));
    assert!(matches!(run("x = 1", "{}").await, Err(CodeError::NoMain)));
    assert!(
        matches!(run("def main(a, c): pass", r#"{"b": 1}"#).await, Err(CodeError::Thrown(text)) if text.contains("TypeError"))
    );
    for code in ["return float('nan')", "return {1, 2}", "x = []; x.append(x); return x", "return {'a': object()}"] {
        let error = run(&format!("def main():\n    {code}"), "{}").await.unwrap_err();
        assert!(matches!(error, CodeError::Result(_)), "{code}: {error:?}");
    }
    assert!(run("def main():\n    import sys; sys.exit(3)", "{}").await.unwrap_err().to_string().contains("exit(3)"));
    assert!(matches!(
        run("def main():\n    import os; os._exit(3)", "{}").await,
        Err(CodeError::Ended { exit_code: 3, .. })
    ));
}

/// Works without the sandbox, and doesn't within.
async fn refused(body: &str) {
    let code = format!("def main():\n    {}\n    return 'done'", body.replace('\n', "\n    "));
    assert_eq!(run_in(&free(), &code, "{}").await.unwrap(), "\"done\"", "the control: {body}");
    for means in [Means::Bubblewrap, Means::Kernel] {
        let python = Python { sandbox: Some(Sandbox::for_code().by(means)), ..Python::default() };
        let error = run_in(&python, &code, "{}").await.unwrap_err();
        assert!(matches!(error, CodeError::Thrown(_)), "{means:?}: {body}: {error:?}");
    }
}

/// Promise 24.
#[tokio::test]
async fn code_can_not_read_what_it_is_not_given() {
    let home = tempfile::tempdir().unwrap();
    fs::set_permissions(home.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let canary = home.path().join("canary");
    fs::write(&canary, "sings").unwrap();
    refused(&format!("open({:?}).read()", canary.to_str().unwrap())).await;
    refused("open('/etc/passwd').read()").await;
    refused("open('/proc/1/cmdline').read()").await;
    refused("open('/proc/self/maps').read()").await;
    refused("import os; os.listdir('/root' if os.getuid() == 0 else os.path.expanduser('~'))").await;
}

#[tokio::test]
async fn code_has_no_network_and_starts_nothing() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    refused(&format!("import socket; socket.create_connection(('127.0.0.1', {port}))")).await;
    refused("import subprocess; subprocess.run(['/bin/true'], check=True)").await;
    refused("import os\npid = os.fork()\nif pid == 0: os._exit(0)\nos.waitpid(pid, 0)").await;
}

#[tokio::test]
async fn code_can_not_write_files() {
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
    refused(&format!("open({:?}, 'w').write('x')", folder.path().join("x").to_str().unwrap())).await;
}

/// The issue's bad inputs.
#[tokio::test]
async fn limits_hold() {
    let limits = CodeLimits { time: Duration::from_secs(1), memory: 128 << 20, output: 1 << 20 };
    let ask = async |code: &str| sandboxed().run(code, &Value::map::<&str>([]), &limits).await.unwrap_err();
    let error = ask("def main():\n    while True: pass").await;
    assert!(matches!(error, CodeError::TimedOut { .. }), "{error:?}");
    let error = ask("def main():\n    x = []\n    while True: x.append(bytearray(1 << 20))").await;
    assert!(matches!(error, CodeError::OutOfMemory { .. }), "{error:?}");
    let error = ask("def main():\n    while True: print('x' * 1000)").await;
    assert!(matches!(error, CodeError::TooMuchOutput { .. }), "{error:?}");
    let error = ask("def main():\n    return 'x' * (2 << 20)").await;
    assert!(matches!(error, CodeError::TooMuchOutput { .. }), "{error:?}");
    let error = ask("import os\ndef main():\n    while True: os.fork()").await;
    assert!(matches!(error, CodeError::Thrown(_)), "{error:?}");
}

#[tokio::test]
async fn an_error_of_a_hundred_megabytes_is_cut() {
    for code in ["raise ValueError('x' * (100 << 20))", "exit('x' * (100 << 20))", "return {'x' * (30 << 20): {1}}[0]"]
    {
        let limits = CodeLimits { memory: 512 << 20, ..CodeLimits::default() };
        let error =
            sandboxed().run(&format!("def main(): {code}"), &Value::map::<&str>([]), &limits).await.unwrap_err();
        let CodeError::Thrown(message) = &error else { panic!("{code}: {}", error.to_string().len()) };
        assert!(message.len() < 20_000, "{code}: {}", message.len());
    }
    let code = "import os, sys\ndef main():\n    print('x' * 100_000)\n    sys.stdout.flush()\n    os._exit(3)";
    let error = run_in(&sandboxed(), code, "{}").await.unwrap_err();
    assert!(
        matches!(&error, CodeError::Ended { said, .. } if said.len() < 600 && said.contains("were cut")),
        "{error}"
    );
}

#[tokio::test]
async fn without_a_sandbox_nothing_runs() {
    let sandbox = Sandbox { bubblewrap: "/no/bwrap".into(), ..Sandbox::for_code().by(Means::Bubblewrap) };
    let python = Python { sandbox: Some(sandbox), ..Python::default() };
    let error = run_in(&python, "def main(): return 1", "{}").await.unwrap_err();
    assert!(matches!(error, CodeError::Process(ProcessError::Unavailable(Unavailable::Bubblewrap(_)))), "{error:?}");
}
