//! Files that the user names: texts of bounded size, and what their names say of their format.

use std::io::Read;
use std::path::Path;

use piton_flow::Format;

use crate::failure::Failure;

/// The largest document or file of inputs that is read.
const MAX_FILE: u64 = 64 << 20;

/// The format of a document, by its name.
pub fn document_format(path: &Path) -> Result<Format, Failure> {
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    Format::of_file_name(&name).ok_or_else(|| {
        Failure::usage(format!("{} is not a document", path.display()))
            .hint("its name should end with .yml, .yaml, .json or .toml.")
    })
}

/// A text file.
pub fn read_text(path: &Path) -> Result<String, Failure> {
    String::from_utf8(read_bytes(path)?)
        .map_err(|error| Failure::fixable(format!("can't read {}", path.display())).because(&error.utf8_error()))
}

/// A file.
pub fn read_bytes(path: &Path) -> Result<Vec<u8>, Failure> {
    let mut file = std::fs::File::open(path).map_err(|error| unreadable(path, &error))?;
    read_source(&mut file, path)
}

fn unreadable(path: &Path, error: &std::io::Error) -> Failure {
    let failure = Failure::fixable(format!("can't read {}", path.display())).because(error);
    match error.kind() {
        std::io::ErrorKind::NotFound if path.is_relative() => {
            failure.hint("names count from the folder that piton works in; `-C DIR` names another.")
        }
        _ => failure,
    }
}

/// What a source has, of which `path` is the name, up to the size of a file.
pub fn read_source(source: &mut dyn Read, path: &Path) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    source.take(MAX_FILE + 1).read_to_end(&mut bytes).map_err(|error| unreadable(path, &error))?;
    if bytes.len() as u64 > MAX_FILE {
        return Err(Failure::fixable(format!("{} is larger than {} MB", path.display(), MAX_FILE >> 20)));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_text_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("flow.yml");
        std::fs::write(&file, b"\xff").unwrap();
        assert!(read_text(&file).is_err() && read_text(folder.path()).is_err());
    }
}
