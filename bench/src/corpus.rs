//! English that doesn't repeat: the documentation comments of the crates that this workspace is built
//! from, each line once. Compression ratios on generated or repeated text mean nothing.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};

/// So many characters of text.
pub(crate) fn text(length: usize) -> anyhow::Result<String> {
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| std::env::home_dir().map(|home| home.join(".cargo"))).context("no home folder")?;
    let mut files = Vec::new();
    collect(&home.join("registry/src"), &mut files);
    files.sort();
    let mut seen = HashSet::new();
    let mut out = String::with_capacity(length + 200);
    for file in files {
        let Ok(source) = std::fs::read_to_string(&file) else { continue };
        let mut code = false;
        for line in source.lines() {
            let line = line.trim_start();
            let Some(comment) = line.strip_prefix("///").or_else(|| line.strip_prefix("//!")) else { continue };
            let comment = comment.trim();
            if comment.starts_with("```") {
                code = !code;
            } else if !code && comment.split(' ').count() >= 6 && comment.is_ascii() && seen.insert(comment.to_owned())
            {
                out.push_str(comment);
                out.push(' ');
            }
        }
        if out.len() >= length {
            out.truncate(length);
            return Ok(out);
        }
    }
    ensure!(false, "only {} characters of text found under {}", out.len(), home.display());
    Ok(out)
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            collect(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}
