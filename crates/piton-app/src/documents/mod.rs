//! Documents that the user names, with those that they include. What they include is looked for beside them, and
//! nowhere else: a link that leads out of the folder isn't followed.

pub mod configured;
pub mod notices;
pub mod outside;
pub mod texts;

use std::path::{Path, PathBuf};

use piton_flow::{Bundle, Document, DocumentFiles, FlowError, Kinds, Problems, Report};

use crate::documents::texts::{document_format, read_text};
use crate::failure::Failure;
use crate::views::documents::ValidatedView;
use crate::words::typed;

/// Reads a document and what it includes. The inner error says what is wrong with them.
pub fn read(path: &Path) -> Result<Result<Bundle, Problems>, Failure> {
    let (format, text) = (document_format(path)?, read_text(path)?);
    Ok(Bundle::read(&text, format, &Beside::of(path)))
}

/// The same, for a caller that can't go on without it.
pub fn read_valid(path: &Path) -> Result<(Bundle, Document), Failure> {
    let bundle = read(path)?.map_err(|problems| invalid(path, problems))?;
    let document = bundle.document().map_err(|problems| invalid(path, problems))?;
    Ok((bundle, document))
}

/// What is wrong with a document, and what tells more of it.
pub fn invalid(path: &Path, problems: Problems) -> Failure {
    let more = typed(&["piton", "validate", &path.to_string_lossy()]);
    let hint = format!("nothing was run. `{more}` says how to put it right.");
    Failure::from(FlowError::Document(problems)).hint(hint)
}

/// Finds everything that is wrong with a document, and what it needs.
pub fn validate(path: &Path) -> Result<ValidatedView, Failure> {
    let report = match read(path)?.and_then(|bundle| bundle.document()) {
        Ok(document) => document.check(&Kinds::builtin()),
        Err(problems) => Report { problems, ..Report::default() },
    };
    Ok(ValidatedView::of(path, &report))
}

/// The folder of a document.
pub struct Beside(PathBuf);

impl Beside {
    /// The folder of this document.
    pub fn of(document: &Path) -> Self {
        let folder = document.parent().filter(|folder| !folder.as_os_str().is_empty());
        Self(folder.unwrap_or(Path::new(".")).to_owned())
    }
}

impl DocumentFiles for Beside {
    fn read(&self, path: &str) -> Result<String, String> {
        let folder = self.0.canonicalize().map_err(|error| error.to_string())?;
        let file = folder.join(path).canonicalize().map_err(|error| error.to_string())?;
        if !file.starts_with(&folder) {
            return Err("it is a link that leads out of the folder of the document".to_owned());
        }
        if !file.is_file() {
            return Err("it is no file".to_owned());
        }
        read_text(&file).map_err(|_| "it can't be read as a text".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_and_what_is_no_file_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let inside = folder.path().join("inside");
        std::fs::create_dir(&inside).unwrap();
        std::fs::write(folder.path().join("secret.yml"), "x: 1").unwrap();
        std::fs::write(inside.join("a.yml"), "nodes: []").unwrap();
        std::fs::create_dir(inside.join("b.yml")).unwrap();
        std::os::unix::fs::symlink("../secret.yml", inside.join("c.yml")).unwrap();
        std::os::unix::fs::symlink("a.yml", inside.join("d.yml")).unwrap();
        std::os::unix::fs::symlink("/dev/zero", inside.join("e.yml")).unwrap();
        let beside = Beside::of(&inside.join("flow.yml"));
        assert_eq!(beside.read("a.yml").as_deref(), Ok("nodes: []"));
        assert_eq!(beside.read("d.yml").as_deref(), Ok("nodes: []"));
        for refused in ["b.yml", "c.yml", "e.yml", "gone.yml"] {
            assert!(beside.read(refused).is_err(), "{refused}");
        }
    }
}
