//! The one thing that writes the user's git: moving a branch onto upstream, by explicit permission (D3).
//!
//! The new commits are made in the private repository, from trees alone: no working tree, hook or filter takes part,
//! and a conflict ends it before anything of the user's was touched. Then, in this order: what git's files are now is
//! kept beside the store; the new objects come in as one pack; index and working tree go over, by git's own two-tree
//! merge, which overwrites nothing that isn't committed; the branch is moved, if it still is where it was; the test
//! command runs. If it fails, all of it is taken back. Taking it back works from any of these points, so a kill in
//! between can be undone, too; git's files are then what they were, to the byte.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::git::{Git, Stop, pieces};
use super::repository::{Mirror, Repository};
use super::{DriftError, DriftOptions, DriftSeverity, check, work};
use crate::Workspace;
use crate::state::State;

/// What a rebase did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Rebased {
    /// The branch.
    pub branch: String,
    /// Where it was.
    pub old: String,
    /// Where it is.
    pub new: String,
    /// How many commits were moved.
    pub commits: usize,
}

/// What is needed to take a rebase back; kept beside the store.
#[derive(Serialize, Deserialize)]
struct RebaseUndo {
    branch: String,
    old: String,
    new: String,
    /// git's files that change, and whether they were there. Their bytes are beside this, in [`copy_of`] their place.
    files: Vec<(PathBuf, bool)>,
    /// All other refs, as they were: while they are, no other ref needs the new objects.
    refs: String,
}

/// The file that it is kept in.
const KEPT: &str = "rebase";

/// The file with the name of the pack that brought the new objects.
const PACK: &str = "rebase-pack";

/// The file with the bytes of one of git's files.
fn copy_of(number: usize) -> String {
    format!("{KEPT}-{number}")
}

impl Workspace {
    /// Moves the branch onto upstream. To call it is the permission. `test` is a shell command that must succeed in
    /// the rebased folder, or the rebase is taken back.
    pub async fn rebase(&self, options: DriftOptions, test: Option<String>) -> Result<Rebased, DriftError> {
        let lock = self.lock(&Arc::default()).await?;
        let inner = Arc::clone(&self.0);
        work(move |_| {
            let _lock = lock;
            // Once begun it is carried out, whether the caller waits for it or not.
            let repository = Repository::find(&inner.root, &Stop::default())?;
            let mirror = Mirror::open(&inner.options.state, inner.store.hashing(), &repository)?;
            let report = check(&repository, &mirror, None, options)?;
            let rebase = Rebase::prepare(&repository, &mirror, &report)?;
            rebase.carry_out(&inner.state, test.as_deref())
        })
        .await
    }

    /// Takes the last rebase back, if nothing was built on it.
    pub async fn undo_rebase(&self) -> Result<Rebased, DriftError> {
        let lock = self.lock(&Arc::default()).await?;
        let inner = Arc::clone(&self.0);
        work(move |_| {
            let _lock = lock;
            undo(&Repository::find(&inner.root, &Stop::default())?, &inner.state)
        })
        .await
    }
}

fn refused(why: impl Into<String>) -> DriftError {
    DriftError::Refused { why: why.into() }
}

fn file_error(path: &Path) -> impl Fn(std::io::Error) -> DriftError {
    move |source| DriftError::File { path: path.to_owned(), source }
}

struct Rebase<'a> {
    repository: &'a Repository,
    mirror: &'a Mirror,
    branch: String,
    old: String,
    new: String,
    commits: usize,
}

impl<'a> Rebase<'a> {
    /// Makes the new commits in the private repository, or says why not.
    fn prepare(
        repository: &'a Repository,
        mirror: &'a Mirror,
        report: &super::DriftReport,
    ) -> Result<Self, DriftError> {
        let (Some(branch), Some(old), Some(upstream)) =
            (repository.branch.clone(), report.head.clone(), report.upstream.clone())
        else {
            return Err(refused(
                report.unasked.clone().unwrap_or_else(|| "there is nothing to rebase onto".to_owned()),
            ));
        };
        if report.is_rewritten() {
            return Err(refused("upstream's history was rewritten: a rebase would mix the two"));
        }
        if report.behind == 0 {
            return Err(refused("upstream has nothing new"));
        }
        if report.severity >= Some(DriftSeverity::High) {
            let files: Vec<_> = report.contested.iter().map(|file| file.path.as_str()).collect();
            return Err(refused(format!("both sides changed the same lines: {}", files.join(", "))));
        }
        let busy = ["rebase-merge", "rebase-apply", "MERGE_HEAD", "CHERRY_PICK_HEAD", "REVERT_HEAD", "BISECT_LOG"];
        if let Some(busy) = busy.into_iter().find(|name| repository.directory.join(name).exists()) {
            return Err(refused(format!("git is in the middle of something else: there is a {busy}")));
        }
        let tracked = repository.git.ask(["ls-files", "-z"])?;
        let tracked: BTreeSet<_> = pieces(&tracked.stdout).map(String::from_utf8_lossy).collect();
        if let Some(path) = report.uncommitted.iter().find(|path| tracked.contains(path.as_str())) {
            return Err(refused(format!("{path} has changes that aren't committed")));
        }
        let base = mirror.common(&old, &upstream)?.ok_or_else(|| refused("there is no common history"))?;
        let merges = mirror.git.ask(["rev-list", "--count", "--min-parents=2", &format!("{base}..{old}")])?.text();
        if merges != "0" {
            return Err(refused("the branch has merges, which only a person can move"));
        }
        let committer = repository.git.ask(["var", "GIT_COMMITTER_IDENT"])?.text();
        let list = mirror.git.ask(["rev-list", "--reverse", "--topo-order", &format!("{base}..{old}")])?.text();
        let (mut onto, mut commits) = (upstream, 0);
        for commit in list.lines() {
            if let Some(moved) = move_commit(&mirror.git, commit, &onto, &committer)? {
                onto = moved;
                commits += 1;
            }
        }
        let rebase = Self { repository, mirror, branch, old, new: onto, commits };
        rebase.refuse_what_needs_more()?;
        Ok(rebase)
    }

    /// Files that a filter makes, and repositories inside, aren't moved by trees alone.
    fn refuse_what_needs_more(&self) -> Result<(), DriftError> {
        let changed = self.mirror.git.ask(["diff-tree", "-r", "-z", "--raw", "--no-renames", &self.old, &self.new])?;
        if changed.stdout.windows(7).any(|mode| mode == b":160000" || mode == b" 160000") {
            return Err(refused("it would move a repository inside this one"));
        }
        let names =
            self.mirror.git.ask(["diff-tree", "-r", "-z", "--name-only", "--no-renames", &self.old, &self.new])?.stdout;
        let limit = std::time::Duration::from_secs(60);
        let filters = self.repository.git.ask_with(["check-attr", "-z", "--stdin", "filter"], &names, limit)?;
        let mut fields = pieces(&filters.stdout);
        while let (Some(path), Some(_), Some(value)) = (fields.next(), fields.next(), fields.next()) {
            if value != b"unspecified" && value != b"unset" {
                return Err(refused(format!("{} goes through a filter", String::from_utf8_lossy(path))));
            }
        }
        Ok(())
    }

    fn carry_out(&self, kept: &State, test: Option<&str>) -> Result<Rebased, DriftError> {
        let (repository, git) = (self.repository, &self.repository.git);
        // The last one can't be taken back any more.
        forget(kept)?;
        self.keep(kept)?;
        let pack = repository.common.join("objects/pack/pack");
        let borrowed = git.clone().borrowing(&self.mirror.directory.join("objects"));
        let wanted = format!("{}\n^{}\n", self.new, self.old);
        let limit = std::time::Duration::from_secs(600);
        let arguments = ["pack-objects".as_ref(), "--quiet".as_ref(), "--revs".as_ref(), pack.as_os_str()];
        let name = borrowed.ask_with(arguments, wanted.as_bytes(), limit)?.text();
        kept.write(PACK, &[name.as_bytes()], true).map_err(file_error(&kept.path(PACK)))?;
        // A file that was only touched would be in the way.
        git.try_ask(["update-index", "-q", "--refresh"])?;
        let moved = git
            .ask(["read-tree", "-m", "-u", &self.old, &self.new])
            .and_then(|_| git.ask(["update-ref", "-m", "piton: rebase", &self.branch, &self.new, &self.old]));
        if let Err(error) = moved {
            undo(repository, kept)?;
            return Err(error);
        }
        if let Some(test) = test {
            let code = run_test(&repository.top, test);
            if code != 0 {
                undo(repository, kept)?;
                return Err(DriftError::TestFailed { code });
            }
        }
        let (branch, old, new) = (self.branch.clone(), self.old.clone(), self.new.clone());
        Ok(Rebased { branch, old, new, commits: self.commits })
    }

    /// Keeps git's files that will change.
    fn keep(&self, kept: &State) -> Result<(), DriftError> {
        let repository = self.repository;
        let of_tree = ["index", "ORIG_HEAD", "logs/HEAD"].map(|name| repository.directory.join(name));
        let of_all = [self.branch.clone(), format!("logs/{}", self.branch), "packed-refs".to_owned()]
            .map(|name| repository.common.join(name));
        let keep = |name: &str, bytes: &[u8]| kept.write(name, &[bytes], true).map_err(file_error(&kept.path(name)));
        let mut files = Vec::new();
        for (number, path) in of_tree.into_iter().chain(of_all).enumerate() {
            let there = match std::fs::read(&path) {
                Ok(bytes) => {
                    keep(&copy_of(number), &bytes)?;
                    true
                }
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => false,
                Err(error) => return Err(file_error(&path)(error)),
            };
            files.push((path, there));
        }
        let record = RebaseUndo {
            branch: self.branch.clone(),
            old: self.old.clone(),
            new: self.new.clone(),
            files,
            refs: other_refs(&repository.git, &self.branch)?,
        };
        let value = piton_types::to_value(&record).expect("paths and texts are a value");
        let text = piton_types::to_json(&value).expect("there is no float in it").to_string();
        keep(KEPT, text.as_bytes())
    }
}

/// Makes a commit anew on top of another; `None` if nothing is left of it.
fn move_commit(git: &Git, commit: &str, onto: &str, committer: &str) -> Result<Option<String>, DriftError> {
    let parent = format!("{commit}^");
    let merged = git.try_ask(["merge-tree", "--write-tree", &format!("--merge-base={parent}"), onto, commit])?;
    let tree = match merged.code {
        0 => merged.text(),
        1 => return Err(refused(format!("commit {commit} can't be moved without a conflict"))),
        code => {
            return Err(DriftError::Git { command: "merge-tree".to_owned(), code, said: merged.stderr });
        }
    };
    let tree_of =
        |commit: &str| git.ask(["rev-parse", "--verify", &format!("{commit}^{{tree}}")]).map(|said| said.text());
    if tree == tree_of(onto)? && tree_of(commit)? != tree_of(&parent)? {
        return Ok(None);
    }
    let raw = git.ask(["cat-file", "commit", commit])?.stdout;
    let new = rewrite(&raw, &tree, onto, committer);
    let limit = std::time::Duration::from_secs(60);
    Ok(Some(git.ask_with(["hash-object", "-t", "commit", "-w", "--stdin"], &new, limit)?.text()))
}

/// The same commit with another tree, parent and committer. Author, encoding and message stay to the byte; a
/// signature, which would be wrong now, goes.
fn rewrite(raw: &[u8], tree: &str, parent: &str, committer: &str) -> Vec<u8> {
    let end = raw.windows(2).position(|pair| pair == b"\n\n").unwrap_or(raw.len());
    let mut out = format!("tree {tree}\nparent {parent}\n").into_bytes();
    let mut dropping = false;
    for line in raw[..end].split(|byte| *byte == b'\n') {
        if line.starts_with(b" ") {
            if !dropping {
                out.extend_from_slice(line);
                out.push(b'\n');
            }
            continue;
        }
        dropping = [&b"tree "[..], b"parent ", b"gpgsig ", b"gpgsig-sha256 ", b"committer "]
            .into_iter()
            .any(|header| line.starts_with(header));
        if line.starts_with(b"committer ") {
            out.extend_from_slice(format!("committer {committer}").as_bytes());
        } else if dropping {
            continue;
        } else {
            out.extend_from_slice(line);
        }
        out.push(b'\n');
    }
    out.extend_from_slice(raw.get(end + 1..).unwrap_or(b"\n"));
    out
}

fn other_refs(git: &Git, branch: &str) -> Result<String, DriftError> {
    let all = git.ask(["for-each-ref", "--format=%(objectname) %(refname)"])?.text();
    Ok(all.lines().filter(|line| !line.ends_with(&format!(" {branch}"))).collect::<Vec<_>>().join("\n"))
}

/// Runs the configured command in the user's folder; -1 if it can't be run.
fn run_test(top: &Path, test: &str) -> i32 {
    let status = Command::new("sh").args(["-c", test]).current_dir(top).stdin(std::process::Stdio::null()).status();
    status.ok().and_then(|status| status.code()).unwrap_or(-1)
}

fn read(kept: &State, name: &str) -> Result<Option<Vec<u8>>, DriftError> {
    kept.read(name).map_err(file_error(&kept.path(name)))
}

/// Removes what is kept of a rebase, the record first: without it the rest is nothing.
fn forget(kept: &State) -> Result<(), DriftError> {
    let Some(record) = read(kept, KEPT)? else { return Ok(()) };
    let copies = parse(kept, &record).map_or(0, |record| record.files.len());
    for name in [KEPT.to_owned(), PACK.to_owned()].into_iter().chain((0..copies).map(copy_of)) {
        kept.remove(&name).map_err(file_error(&kept.path(&name)))?;
    }
    Ok(())
}

fn parse(kept: &State, record: &[u8]) -> Result<RebaseUndo, DriftError> {
    piton_types::from_json(record)
        .map_err(|error| error.to_string())
        .and_then(|value| piton_types::from_value(value).map_err(|error| error.to_string()))
        .map_err(|error| file_error(&kept.path(KEPT))(std::io::Error::other(error)))
}

/// Puts another content in the place of one of git's files as git does: by a lock file beside it, which no link leads
/// elsewhere from and no other program writes.
fn replace(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".lock");
    let mut file = std::fs::File::options().write(true).create_new(true).open(&beside)?;
    let written = file.write_all(bytes).and_then(|()| std::fs::rename(&beside, path));
    written.inspect_err(|_| drop(std::fs::remove_file(&beside)))
}

/// Puts git's files, the index and the working tree back.
fn undo(repository: &Repository, kept: &State) -> Result<Rebased, DriftError> {
    let Some(record) = read(kept, KEPT)? else { return Err(refused("there is no rebase that could be taken back")) };
    let record = parse(kept, &record)?;
    let git = &repository.git;
    let now = repository.resolve(&record.branch)?;
    if repository.branch.as_ref() != Some(&record.branch)
        || ![&record.old, &record.new].map(Some).contains(&now.as_ref())
    {
        return Err(refused("the branch has moved since, so the rebase can't be taken back exactly"));
    }
    let staged = |commit: &str| -> Result<bool, DriftError> {
        Ok(git.try_ask(["diff-index", "--cached", "--quiet", "--ignore-submodules", commit])?.code == 0)
    };
    let arrived = repository.resolve(&record.new)?.is_some();
    if arrived && staged(&record.new)? {
        git.try_ask(["update-index", "-q", "--refresh"])?;
        git.ask(["read-tree", "-m", "-u", &record.new, &record.old])?;
    } else if !staged(&record.old)? {
        return Err(refused("something was staged since, so the rebase can't be taken back exactly"));
    }
    for (number, (path, there)) in record.files.iter().enumerate() {
        if *there {
            let copy = copy_of(number);
            let bytes = read(kept, &copy)?.ok_or_else(|| std::io::ErrorKind::NotFound.into());
            replace(path, &bytes.map_err(file_error(&kept.path(&copy)))?).map_err(file_error(path))?;
        } else {
            match std::fs::remove_file(path) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(file_error(path)(error)),
                _ => {}
            }
        }
    }
    // Another ref may need the new objects by now; a pack too many does no harm.
    if other_refs(git, &record.branch)? == record.refs
        && let Some(name) = read(kept, PACK)?.and_then(|name| String::from_utf8(name).ok())
    {
        for kind in ["idx", "rev", "pack"] {
            let path = repository.common.join(format!("objects/pack/pack-{name}.{kind}"));
            match std::fs::remove_file(&path) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(file_error(&path)(error)),
                _ => {}
            }
        }
    }
    forget(kept)?;
    Ok(Rebased { branch: record.branch, old: record.new, new: record.old, commits: 0 })
}
