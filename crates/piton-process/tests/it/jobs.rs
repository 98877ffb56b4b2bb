//! Programs without a sandbox: ends, limits, and that nothing is left behind.

use std::time::Duration;

use piton_process::{Job, ProcessError, run};

fn shell(script: &str) -> Job {
    Job::new("/bin/sh").arguments(["-c", script])
}

#[tokio::test]
async fn a_program_gives_its_outputs_and_its_exit_code() {
    let mut job = shell("cat; echo oops >&2; exit 7");
    job.input = b"hello".to_vec();
    let ended = run(job).await.unwrap();
    assert_eq!((ended.exit_code, ended.stdout.as_slice(), ended.stderr.as_slice()), (7, &b"hello"[..], &b"oops\n"[..]));
    assert_eq!(run(shell("kill -TERM $$")).await.unwrap().exit_code, 128 + 15);
}

#[tokio::test]
async fn a_program_that_does_not_read_its_input_is_no_error() {
    let mut job = shell("exit 0");
    job.input = vec![b'x'; 1 << 20];
    assert_eq!(run(job).await.unwrap().exit_code, 0);
}

#[tokio::test]
async fn a_program_that_is_not_there_is_named() {
    let error = run(Job::new("/no/such/program")).await.unwrap_err();
    assert!(matches!(&error, ProcessError::Start { program, .. } if program == "/no/such/program"), "{error}");
}

#[tokio::test]
async fn the_environment_is_kept_or_not() {
    let mut job = shell("echo $PATH-$MINE");
    job.environment.insert("MINE".into(), "here".into());
    let kept = run(job.clone()).await.unwrap();
    assert_ne!(kept.stdout, b"-here\n");
    job.clean_environment = true;
    job.arguments = vec!["-c".into(), "/usr/bin/env | /usr/bin/grep -c CARGO".into()];
    assert_eq!(run(job).await.unwrap().stdout, b"0\n", "cargo's variables were around us");
}

#[tokio::test]
async fn a_flood_of_output_is_cut_and_named() {
    let mut job = Job::new("/usr/bin/yes");
    job.limits.output = 1 << 20;
    let error = run(job).await.unwrap_err();
    assert!(matches!(error, ProcessError::TooMuchOutput { limit } if limit == 1 << 20), "{error}");
}

/// Promise 24: what outlives its time dies, with what it started.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_program_that_takes_too_long_dies_with_its_children() {
    let folder = tempfile::tempdir().unwrap();
    let mut job = shell("sleep 1000 & echo $! > child; echo $$ > self; wait");
    job.folder = Some(folder.path().to_owned());
    job.limits.time = Some(Duration::from_millis(500));
    let error = run(job).await.unwrap_err();
    assert!(matches!(error, ProcessError::TimedOut { .. }), "{error}");
    for name in ["child", "self"] {
        let pid = std::fs::read_to_string(folder.path().join(name)).unwrap();
        gone(pid.trim()).await;
    }
}

/// Waits until a process is dead or a zombie; fails if it never is.
#[cfg(target_os = "linux")]
async fn gone(pid: &str) {
    for _ in 0..200 {
        match std::fs::read_to_string(format!("/proc/{pid}/stat")) {
            Err(_) => return,
            Ok(stat) if stat.contains(") Z ") => return,
            Ok(_) => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    }
    panic!("process {pid} lives on");
}
