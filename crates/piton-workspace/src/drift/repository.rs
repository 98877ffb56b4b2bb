//! The user's repository, only looked at; and a private one beside the store that borrows its objects and takes what
//! is fetched. The user's own gets neither objects nor refs. Where that one lies is written down nowhere: the store may be
//! encrypted.

use std::path::{Path, PathBuf};
use std::time::Duration;

use piton_store::Hashing;

use super::DriftError;
use super::git::{Git, Stop};

/// Where fetched heads are kept in the private repository.
const FETCHED: &str = "refs/piton/upstream";

/// What a repository follows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Follows {
    /// A branch of another repository.
    Remote { name: String, url: String, branch: String, tracking: Option<String> },
    /// Another branch of the same one.
    Local { head: String },
}

/// The user's repository.
#[derive(Debug, Clone)]
pub(super) struct Repository {
    pub(super) git: Git,
    pub(super) top: PathBuf,
    /// git's folder of this working tree.
    pub(super) directory: PathBuf,
    /// git's folder of the repository, which working trees share.
    pub(super) common: PathBuf,
    pub(super) head: Option<String>,
    /// `refs/heads/…`; `None` if no branch is checked out.
    pub(super) branch: Option<String>,
    format: String,
}

impl Repository {
    /// The repository that a folder is in.
    pub(super) fn find(folder: &Path, stop: &Stop) -> Result<Self, DriftError> {
        let git = Git::new(folder, stop)?;
        let question = [
            "rev-parse",
            "--path-format=absolute",
            "--show-toplevel",
            "--git-dir",
            "--git-common-dir",
            "--show-object-format",
        ];
        let said = git.try_ask(question)?;
        let text = said.text();
        let [top, directory, common, format] = text.lines().collect::<Vec<_>>()[..] else {
            return Err(DriftError::NoRepository {
                folder: folder.to_owned(),
                why: said.stderr.lines().next().unwrap_or_default().trim_start_matches("fatal: ").to_owned(),
            });
        };
        let head = git.try_ask(["rev-parse", "--verify", "--quiet", "HEAD^{commit}"])?;
        let head = (head.code == 0).then(|| head.text());
        let branch = git.try_ask(["symbolic-ref", "--quiet", "HEAD"])?;
        let branch = (branch.code == 0).then(|| branch.text());
        let (top, directory, common) = (PathBuf::from(top), PathBuf::from(directory), PathBuf::from(common));
        // Paths in what follows are from the top.
        let git = Git::new(&top, stop)?;
        Ok(Self { git, top, directory, common, head, branch, format: format.to_owned() })
    }

    fn setting(&self, key: &str) -> Result<Option<String>, DriftError> {
        let said = self.git.try_ask(["config", "--get", key])?;
        Ok((said.code == 0).then(|| said.text()).filter(|text| !text.is_empty()))
    }

    /// The commit that a ref leads to.
    pub(super) fn resolve(&self, name: &str) -> Result<Option<String>, DriftError> {
        let said = self.git.try_ask([
            "rev-parse",
            "--verify",
            "--quiet",
            "--end-of-options",
            &format!("{name}^{{commit}}"),
        ])?;
        Ok((said.code == 0).then(|| said.text()))
    }

    /// What the branch follows; the reason if nothing.
    pub(super) fn follows(&self) -> Result<Result<Follows, String>, DriftError> {
        let Some(branch) = self.branch.as_deref().and_then(|branch| branch.strip_prefix("refs/heads/")) else {
            return Ok(Err("no branch is checked out".to_owned()));
        };
        let remote = self.setting(&format!("branch.{branch}.remote"))?;
        let merge = self.setting(&format!("branch.{branch}.merge"))?;
        let (Some(name), Some(merge)) = (remote, merge) else {
            return Ok(Err(format!("branch {branch} follows nothing")));
        };
        if name == "." {
            return Ok(match self.resolve(&merge)? {
                Some(head) => Ok(Follows::Local { head }),
                None => Err(format!("{merge}, which branch {branch} follows, isn't there")),
            });
        }
        let Some(url) = self.setting(&format!("remote.{name}.url"))? else {
            return Ok(Err(format!("remote {name} has no address")));
        };
        let tracking = self.resolve(&format!("refs/heads/{branch}@{{upstream}}"))?;
        let tracking = match tracking {
            Some(tracking) => Some(tracking),
            None => self.resolve(&format!("{branch}@{{upstream}}"))?,
        };
        Ok(Ok(Follows::Remote { name, url, branch: merge, tracking }))
    }
}

/// The private repository.
#[derive(Debug, Clone)]
pub(super) struct Mirror {
    pub(super) git: Git,
    pub(super) directory: PathBuf,
}

impl Mirror {
    /// Opens it, and makes it if there is none.
    pub(super) fn open(state: &Path, hashing: &Hashing, repository: &Repository) -> Result<Self, DriftError> {
        let hash = hashing.blob(repository.common.as_os_str().as_encoded_bytes()).to_string();
        let directory = state.join(format!("git-{}", &hash[..16]));
        if !directory.join("HEAD").exists() {
            let format = format!("--object-format={}", repository.format);
            let made = repository.git.ask([
                "init".as_ref(),
                "--quiet".as_ref(),
                "--bare".as_ref(),
                "--template=".as_ref(),
                format.as_ref(),
                directory.as_os_str(),
            ]);
            made?;
        }
        // Where the history of the user's ends early, so does this one's.
        let shallow = directory.join("shallow");
        match std::fs::read(repository.common.join("shallow")) {
            Ok(ends) => {
                std::fs::write(&shallow, ends).map_err(|source| DriftError::File { path: shallow, source })?;
            }
            Err(_) => {
                let _ = std::fs::remove_file(shallow);
            }
        }
        let git = repository.git.on(&directory).borrowing(&repository.common.join("objects"));
        Ok(Self { git, directory })
    }

    /// Fetches a branch of another repository.
    pub(super) fn fetch(
        &self,
        repository: &Repository,
        url: &str,
        branch: &str,
        limit: Duration,
    ) -> Result<String, DriftError> {
        // What is known already needn't come again.
        if let Some(head) = &repository.head {
            self.git.ask(["update-ref", "refs/piton/head", head])?;
        }
        let what = format!("+{branch}:{FETCHED}");
        let arguments = [
            "fetch",
            "--quiet",
            "--no-tags",
            "--no-write-fetch-head",
            "--no-auto-maintenance",
            "--no-recurse-submodules",
            "--no-show-forced-updates",
            "--end-of-options",
            url,
            &what,
        ];
        self.git.ask_with(arguments, b"", limit)?;
        let head = self.git.ask(["rev-parse", "--verify", FETCHED])?.text();
        // Kept for as long as the store is: what a force push takes away stays here.
        self.git.ask(["update-ref", &format!("refs/piton/seen/{head}"), &head])?;
        Ok(head)
    }

    /// Whether a commit is here at all.
    pub(super) fn has(&self, commit: &str) -> Result<bool, DriftError> {
        Ok(self.git.try_ask(["cat-file", "-e", &format!("{commit}^{{commit}}")])?.code == 0)
    }

    /// Whether `new` goes on from `old`.
    pub(super) fn is_ancestor(&self, old: &str, new: &str) -> Result<bool, DriftError> {
        if old == new {
            return Ok(true);
        }
        let said = self.git.try_ask(["merge-base", "--is-ancestor", old, new])?;
        match said.code {
            0 => Ok(true),
            1 => Ok(false),
            code => Err(DriftError::Git { command: "merge-base".to_owned(), code, said: said.stderr }),
        }
    }

    /// The newest commit that two have in common.
    pub(super) fn common(&self, a: &str, b: &str) -> Result<Option<String>, DriftError> {
        let said = self.git.try_ask(["merge-base", a, b])?;
        Ok((said.code == 0).then(|| said.text().lines().next().unwrap_or_default().to_owned()))
    }

    /// How many commits only the first has, and only the second.
    pub(super) fn apart(&self, a: &str, b: &str) -> Result<(u32, u32), DriftError> {
        let text = self.git.ask(["rev-list", "--left-right", "--count", &format!("{a}...{b}")])?.text();
        let mut numbers = text.split_whitespace().map(|number| number.parse().unwrap_or(u32::MAX));
        Ok((numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)))
    }
}
