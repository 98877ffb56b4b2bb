//! `piton merge-file OURS BASE THEIRS`: a three-way merge with the exit codes of `git merge-file`, so that git can
//! use it as a merge driver. It needs no store.

use std::io::Write as _;
use std::path::Path;

use piton_app::views::files::MergedView;
use piton_workspace::{ConflictStyle, Favour, MergeOptions, merge};

use crate::arguments::files::MergeFile;
use crate::failure::{Exit, Failure};
use crate::output::clean;
use crate::session::Session;

/// The most conflicts that an exit code tells.
const MOST: usize = 127;

/// What git ends with when files can't be merged at all.
const UNMERGEABLE: Exit = Exit::Of(255);

pub(crate) fn execute(session: &Session, arguments: &MergeFile) -> Exit {
    merge_files(session, arguments).unwrap_or_else(|failure| session.output.failure_with(&failure, UNMERGEABLE))
}

fn merge_files(session: &Session, arguments: &MergeFile) -> Result<Exit, Failure> {
    let (base, ours, theirs) =
        (read_or_nothing(&arguments.base)?, read(&arguments.ours)?, read_or_nothing(&arguments.theirs)?);
    let merged = merge(&base, &ours, &theirs, &options(arguments))
        .map_err(|error| Failure::fixable(format!("can't merge {}", shown(&arguments.ours))).because(&error))?;
    if session.output.is_json() {
        session.output.view(&MergedView {
            conflicts: merged.conflicts,
            text: arguments.stdout.then(|| String::from_utf8_lossy(&merged.text).into_owned()),
        })?;
    } else if arguments.stdout {
        let mut stdout = std::io::stdout().lock();
        let written = stdout.write_all(&merged.text).and_then(|()| stdout.flush());
        match written {
            // The reader has seen enough.
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => {}
            written => written.map_err(|error| Failure::fixable("can't write to stdout").because(&error))?,
        }
    }
    if !arguments.stdout {
        write(&arguments.ours, &merged.text)?;
    }
    Ok(match merged.conflicts {
        0 => Exit::Done,
        conflicts => Exit::Of(u8::try_from(conflicts.min(MOST)).unwrap_or(u8::MAX)),
    })
}

fn options(arguments: &MergeFile) -> MergeOptions {
    let label = |place: usize, path: &Path| match arguments.label.get(place) {
        Some(label) => label.clone().into_bytes(),
        None => path.as_os_str().as_encoded_bytes().to_vec(),
    };
    MergeOptions {
        style: match (arguments.diff3, arguments.zdiff3) {
            (true, _) => ConflictStyle::Diff3,
            (_, true) => ConflictStyle::Zdiff3,
            _ => ConflictStyle::Merge,
        },
        favour: match (arguments.favour_ours, arguments.favour_theirs, arguments.union) {
            (true, ..) => Some(Favour::Ours),
            (_, true, _) => Some(Favour::Theirs),
            (.., true) => Some(Favour::Union),
            _ => None,
        },
        marker_size: arguments.marker_size.into(),
        ours: label(0, &arguments.ours),
        base: label(1, &arguments.base),
        theirs: label(2, &arguments.theirs),
    }
}

fn shown(path: &Path) -> String {
    clean(&path.to_string_lossy())
}

/// `/dev/null` is how people write a version that isn't there.
fn read_or_nothing(path: &Path) -> Result<Vec<u8>, Failure> {
    if path == Path::new("/dev/null") { Ok(Vec::new()) } else { read(path) }
}

fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    let fail = |error| Failure::fixable(format!("can't read {}", shown(path))).because(&error);
    let about = std::fs::metadata(path).map_err(fail)?;
    if !about.is_file() {
        // A pipe would be waited for.
        return Err(Failure::fixable(format!("{} is no regular file", shown(path))));
    }
    std::fs::read(path).map_err(fail)
}

/// Whole or not at all: the text waits beside the file and takes its place.
fn write(path: &Path, text: &[u8]) -> Result<(), Failure> {
    let fail = |error: std::io::Error| Failure::fixable(format!("can't write {}", shown(path))).because(&error);
    // A link stays one: what it leads to is what is merged.
    let path = path.canonicalize().map_err(fail)?;
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".piton-{}", std::process::id()));
    let beside = path.with_file_name(name);
    let put = || {
        std::fs::write(&beside, text)?;
        std::fs::set_permissions(&beside, std::fs::metadata(&path)?.permissions())?;
        std::fs::rename(&beside, &path)
    };
    put().map_err(|error| {
        let _ = std::fs::remove_file(&beside);
        fail(error)
    })
}
