//! Who did what: a line before each act and one after it, in a file that only its owner can read and that is only added to.
//! An act that can't be written down isn't done. What is sent with an act isn't written: it may have secrets.

use std::fs::{File, OpenOptions};
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use piton_app::Failure;
use serde_json::{Value as Json, json};

/// How much of the end of the file is read.
const TAIL: u64 = 4 << 20;

/// The file.
pub(crate) struct Audit {
    path: PathBuf,
    file: Mutex<File>,
}

/// An act that was written down and isn't over.
pub(crate) struct Begun(String);

impl Audit {
    /// Opens the file in a folder of the user's.
    pub(crate) fn open(folder: &Path) -> Result<Self, Failure> {
        let path = folder.join("audit.jsonl");
        let file = OpenOptions::new().create(true).append(true).mode(0o600).open(&path);
        let file = file.map_err(|error| {
            Failure::fixable(format!("can't write to {}", path.display()))
                .because(&error)
                .hint("every act is written down there first; without it none is done.")
        })?;
        Ok(Self { path, file: Mutex::new(file) })
    }

    /// Writes down what is about to be done.
    pub(crate) fn begin(&self, at: String, act: &str, by: &str, from: &str, subject: &str) -> Result<Begun, Failure> {
        let mut id = [0; 8];
        getrandom::fill(&mut id)
            .map_err(|error| Failure::fixable("the system gives no random numbers").because(&error))?;
        let id = format!("{:016x}", u64::from_be_bytes(id));
        self.write(&json!({ "id": id, "at": at, "by": by, "from": from, "act": act, "subject": subject }))?;
        Ok(Begun(id))
    }

    /// Writes down what came of it.
    pub(crate) fn end(&self, begun: &Begun, status: u16, detail: Option<&str>) -> Result<(), Failure> {
        self.write(&json!({ "of": begun.0, "status": status, "detail": detail }))
    }

    fn write(&self, line: &Json) -> Result<(), Failure> {
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        file.write_all(format!("{line}\n").as_bytes()).map_err(|error| {
            Failure::fixable(format!("can't write to {}", self.path.display()))
                .because(&error)
                .hint("nothing is done that can't be written down.")
        })
    }

    /// The newest acts, newest first, each with what came of it; null if it isn't over, or the server died on it.
    pub(crate) fn newest(&self, limit: usize) -> Result<Vec<Json>, Failure> {
        let read = || -> std::io::Result<Vec<u8>> {
            let mut file = File::open(&self.path)?;
            let length = file.metadata()?.len();
            file.seek(SeekFrom::Start(length.saturating_sub(TAIL)))?;
            let mut bytes = Vec::new();
            file.read_to_end(&mut bytes)?;
            Ok(bytes)
        };
        let bytes =
            read().map_err(|error| Failure::fixable(format!("can't read {}", self.path.display())).because(&error))?;
        let lines = bytes.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice::<Json>(line).ok());
        let (mut acts, mut ends): (Vec<Json>, Vec<Json>) = lines.partition(|line| line.get("act").is_some());
        acts.reverse();
        acts.truncate(limit);
        ends.reverse();
        for act in &mut acts {
            let end = ends.iter().find(|end| end["of"] == act["id"]);
            act["status"] = end.map_or(Json::Null, |end| end["status"].clone());
            act["detail"] = end.map_or(Json::Null, |end| end["detail"].clone());
        }
        Ok(acts)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use super::*;

    #[test]
    fn an_act_is_there_before_it_is_done_and_a_torn_line_hides_no_other() {
        let root = tempfile::tempdir().unwrap();
        let audit = Audit::open(root.path()).unwrap();
        let first = audit.begin("t1".to_owned(), "stop", "operate", "127.0.0.1", "r").unwrap();
        assert_eq!(audit.newest(10).unwrap()[0]["status"], Json::Null);
        audit.end(&first, 200, None).unwrap();
        audit.file.lock().unwrap().write_all(b"{\"torn\n").unwrap();
        audit.begin("t2".to_owned(), "cancel", "operate", "127.0.0.1", "r").unwrap();
        let acts = Audit::open(root.path()).unwrap().newest(10).unwrap();
        assert_eq!((acts.len(), &acts[0]["act"], &acts[1]["status"]), (2, &json!("cancel"), &json!(200)));
        assert_eq!(root.path().join("audit.jsonl").metadata().unwrap().mode() & 0o777, 0o600);
    }
}
