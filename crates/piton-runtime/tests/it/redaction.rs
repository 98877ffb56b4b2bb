//! Promise 26: a secret named by policy is in no file of a store, no event and no recorded error, in clear, in base64
//! or in hex; and a run that is resumed has it again.

use std::path::Path;
use std::sync::{Arc, Mutex};

use piton_log::{Content, DraftPart, RunLog};
use piton_runtime::{Listener, OpenRun, Run, RunError, WholeHistory};
use piton_store::{EncryptedStore, Key, RedactedStore, Redaction, RedactionPolicy, Store};
use piton_store_objects::{FolderOptions, ObjectStore};
use piton_store_sqlite::{SqliteOptions, SqliteStore};
use piton_testing::SeededRandom;
use piton_types::{Value, to_json, to_value};

use crate::support::{open, process, run_id};

const CANARY: &str = "canary-Zk49_sings";

/// Base64 of it at three offsets, without the edges; hex in both cases.
const FORMS: [&str; 6] = [
    CANARY,
    "63616e6172792d5a6b34395f73696e6773",
    "63616E6172792D5A6B34395F73696E6773",
    "Y2FuYXJ5LVprNDlfc2luZ3",
    "NhbmFyeS1aazQ5X3Npbmdz",
    "jYW5hcnktWms0OV9zaW5nc",
];

fn mentions(bytes: &[u8]) -> bool {
    FORMS.iter().any(|form| bytes.windows(form.len()).any(|window| window == form.as_bytes()))
}

/// What a folder's files hold, also inside the base64 that the file store writes, and inflated.
fn leaks(folder: &Path) -> Vec<String> {
    let (mut found, mut folders) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let bytes = std::fs::read(&path).unwrap();
            if mentions(&bytes) {
                found.push(path.display().to_string());
            }
        }
    }
    found
}

fn stores(folder: &Path) -> Vec<(&'static str, Arc<dyn Store>)> {
    vec![
        ("sqlite", Arc::new(SqliteStore::open(folder.join("s.db"), SqliteOptions::default()).unwrap())),
        ("file", Arc::new(ObjectStore::in_folder(folder.join("files"), &FolderOptions::default()).unwrap())),
    ]
}

fn redacting(store: &Arc<dyn Store>) -> Arc<dyn Store> {
    let policy = RedactionPolicy::default().with_secret("CANARY", CANARY);
    Arc::new(RedactedStore::new(Arc::clone(store), Arc::new(Redaction::new(&policy).unwrap())))
}

/// The secret everywhere that a program can put it. Fails at the end, the first time.
async fn program(store: &Arc<dyn Store>, fail: bool, events: Listener) -> Result<(), RunError> {
    let header = format!("Bearer {CANARY}");
    let body = Value::map([("token", Value::from(CANARY)), ("url", Value::from(format!("https://x/?k={CANARY}&a=1")))]);
    let opened = OpenRun { name: header.clone(), body: body.clone(), events, ..open() };
    let mut run = Run::open(&process(store), opened).await?;
    assert_eq!(run.input(), &body, "what was put in is what the program has, also when it goes on");
    let given: String = run.step("call", header.clone(), async |header| Ok::<_, String>(format!("{header}!"))).await?;
    assert_eq!(given, format!("{header}!"));
    run.save("app", &Value::List(vec![Value::from(header.clone())])).await?;
    let mut state = run.part_state_or("state", &Value::map([("text", Value::from(""))])).await?;
    state.set(&"/key".parse().unwrap(), Value::from(CANARY)).await.unwrap();
    // In pieces, as a model streams.
    for piece in CANARY.as_bytes().chunks(5) {
        state.append_text(&"/text".parse().unwrap(), std::str::from_utf8(piece).unwrap()).await.unwrap();
    }
    let part =
        DraftPart { name: "state".into(), schema: String::new(), version: 1, content: Content::State(&mut state) };
    run.checkpoint(&header, vec![part]).await?;
    assert_eq!(run.part("app").await?.unwrap(), Value::List(vec![Value::from(header.clone())]));
    run.lines().write(format!("calling with {CANARY}"));
    if fail {
        let failed: Result<(), _> = run.step("break", (), async |()| Err(format!("401 for {header}"))).await;
        let error = failed.unwrap_err();
        run.fail(&error).await?;
        return Err(error.into());
    }
    run.complete(&header).await
}

#[tokio::test]
async fn a_canary_is_in_no_file_event_or_error() {
    for redact in [true, false] {
        let folder = tempfile::tempdir().unwrap();
        for (name, below) in stores(folder.path()) {
            let store = if redact { redacting(&below) } else { Arc::clone(&below) };
            let told = Arc::new(Mutex::new(String::new()));
            let listener = || {
                let told = Arc::clone(&told);
                Listener::new(move |event| {
                    let json = to_json(&to_value(event).unwrap()).unwrap();
                    told.lock().unwrap().push_str(&json.to_string());
                })
            };
            program(&store, true, listener()).await.unwrap_err();
            program(&store, false, listener()).await.unwrap();
            let log = RunLog::open(Arc::clone(&store), &run_id()).await.unwrap();
            log.close().await.unwrap();
            let told = told.lock().unwrap().clone();
            assert!(told.len() > 300, "{told}");
            assert_eq!(mentions(told.as_bytes()), !redact, "{name}: {told}");
            // A reader without the policy sees the names of the secrets, a reader with it the secrets.
            for (store, expected) in [(&below, "secret:CANARY"), (&store, CANARY)] {
                let log = RunLog::open(Arc::clone(store), &run_id()).await.unwrap();
                let history = WholeHistory::read(&log).await.unwrap();
                let shown = format!("{:?}", history.steps);
                if redact {
                    assert!(shown.contains(expected), "{name}: {shown}");
                }
            }
            store.close().await.unwrap();
        }
        // The negative control: the same search finds what isn't redacted. (SQLite and JSON, before any fold.)
        assert_eq!(leaks(folder.path()).is_empty(), redact, "{:?}", leaks(folder.path()));
    }
}

/// Redaction above encryption: both hold.
#[tokio::test]
async fn redaction_and_encryption_go_together() {
    let folder = tempfile::tempdir().unwrap();
    let random = Arc::new(SeededRandom::new(3));
    let below: Arc<dyn Store> = Arc::new(ObjectStore::in_folder(folder.path(), &FolderOptions::default()).unwrap());
    let key = Key::generate(&*random);
    let encrypted: Arc<dyn Store> = Arc::new(EncryptedStore::create(below, &key, random).await.unwrap());
    let store = redacting(&encrypted);
    program(&store, true, Listener::default()).await.unwrap_err();
    program(&store, false, Listener::default()).await.unwrap();
    let log = RunLog::open(Arc::clone(&encrypted), &run_id()).await.unwrap();
    let shown = format!("{:?}", WholeHistory::read(&log).await.unwrap().steps);
    assert!(shown.contains("secret:CANARY") && !shown.contains(CANARY), "{shown}");
    assert!(leaks(folder.path()).is_empty());
}
