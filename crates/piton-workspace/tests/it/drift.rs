//! The repository moves under a run. D1 to D5, decision 10; with real repositories and remotes.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use piton_workspace::{Advice, DriftError, DriftEvent, DriftOptions, DriftReport, DriftSeverity, Resolution, advise};

use crate::world::{Plain, World, look};

/// A remote, a clone of it that is the workspace, and another clone from which others push.
struct Repositories {
    world: World,
}

fn git_in(folder: &Path, arguments: &[&str]) -> String {
    let output = Command::new("git")
        .args(["-c", "user.name=Tess T", "-c", "user.email=t@example.invalid", "-c", "commit.gpgSign=false"])
        .args(["-c", "init.defaultBranch=main", "-c", "protocol.file.allow=always", "-c", "core.hooksPath=/dev/null"])
        .args(arguments)
        .current_dir(folder)
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .output()
        .unwrap();
    assert!(output.status.success(), "git {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

const TEN: &str = "1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n";

impl Repositories {
    fn new() -> Self {
        let world = World::new();
        let repositories = Self { world };
        let base = repositories.world.scratch.path().to_owned();
        git_in(&base, &["init", "-q", "--bare", "remote.git"]);
        git_in(&base, &["clone", "-q", "remote.git", "other"]);
        for name in ["a", "b", "c"] {
            repositories.push(&[(name, TEN)], name);
        }
        std::fs::remove_dir(repositories.world.root()).unwrap();
        git_in(&base, &["clone", "-q", "remote.git", "work"]);
        git_in(&repositories.world.root(), &["config", "user.name", "Wren"]);
        git_in(&repositories.world.root(), &["config", "user.email", "w@example.invalid"]);
        repositories
    }

    fn other(&self) -> PathBuf {
        self.world.scratch.join("other")
    }

    /// Another clone pushes.
    fn push(&self, files: &[(&str, &str)], message: &str) {
        for (name, text) in files {
            std::fs::write(self.other().join(name), text).unwrap();
        }
        git_in(&self.other(), &["add", "-A"]);
        git_in(&self.other(), &["commit", "-qm", message]);
        git_in(&self.other(), &["push", "-qf", "origin", "HEAD:main"]);
    }

    fn commit(&self, files: &[(&str, &str)], message: &str) {
        files.iter().for_each(|(name, text)| self.world.write(name, text));
        git_in(&self.world.root(), &["add", "-A"]);
        git_in(&self.world.root(), &["commit", "-qm", message]);
    }

    async fn check(&self) -> DriftReport {
        self.world.workspace().check_drift(None, DriftOptions::default()).await.unwrap()
    }

    /// git's own files, to the byte.
    fn git_files(&self) -> BTreeMap<PathBuf, Plain> {
        look(&self.world.path(".git"))
    }
}

fn changed(line: usize, text: &str) -> String {
    let mut lines: Vec<&str> = TEN.lines().collect();
    lines[line - 1] = text;
    lines.join("\n") + "\n"
}

/// D1, D2: upstream commits are seen and weighed by files and by lines, and git's files stay as they were.
#[tokio::test(flavor = "multi_thread")]
async fn upstream_commits_are_weighed_by_files_and_lines() {
    let repositories = Repositories::new();
    let before = repositories.git_files();
    let nothing = repositories.check().await;
    assert_eq!((nothing.behind, nothing.severity, nothing.events.len()), (0, None, 0));

    repositories.push(&[("a", &changed(1, "theirs"))], "theirs");
    let low = repositories.check().await;
    assert_eq!((low.behind, low.ahead, low.severity), (1, 0, Some(DriftSeverity::Low)));
    assert_eq!(low.compared, 0, "no file was read");
    assert!(matches!(&low.events[..], [DriftEvent::UpstreamChange { commits_behind: 1, .. }]), "{low:?}");

    repositories.world.write("a", changed(9, "mine"));
    repositories.world.write("b", changed(1, "mine"));
    let medium = repositories.check().await;
    assert_eq!((medium.severity, medium.compared), (Some(DriftSeverity::Medium), 1), "only what both changed is read");
    assert_eq!(medium.uncommitted, ["a", "b"]);
    assert_eq!(medium.contested[0].path, "a");

    repositories.world.write("a", changed(1, "mine"));
    let high = repositories.check().await;
    assert_eq!(high.severity, Some(DriftSeverity::High));
    assert_eq!(advise(high.severity, high.is_rewritten(), Some(10), None), Advice::Restart);
    repositories.world.remove("a");
    assert_eq!(repositories.check().await.severity, Some(DriftSeverity::High), "deleted here, changed there");
    assert_eq!(repositories.git_files(), before, "the user's git was written");
}

/// Work that is committed here counts as much as what isn't, renames are followed, and a touched file is no change.
#[tokio::test(flavor = "multi_thread")]
async fn committed_work_renames_and_line_ends() {
    let repositories = Repositories::new();
    repositories.commit(&[("a", &changed(9, "mine"))], "mine");
    git_in(&repositories.other(), &["mv", "a", "renamed"]);
    repositories.push(&[("renamed", &changed(1, "theirs"))], "renamed and changed");
    repositories.world.write("b", TEN);
    let report = repositories.check().await;
    assert_eq!((report.behind, report.ahead), (1, 1));
    assert!(report.uncommitted.is_empty(), "{:?}", report.uncommitted);
    assert_eq!((report.severity, report.contested.len()), (Some(DriftSeverity::Medium), 1), "{report:?}");
    // The same text with other line ends on disk isn't a change of every line.
    repositories.world.write("a", changed(9, "mine").replace('\n', "\r\n"));
    assert_eq!(repositories.check().await.severity, Some(DriftSeverity::Medium));
    // A new file here that upstream has, too.
    repositories.push(&[("new", "theirs\n")], "new");
    repositories.world.write("new", "mine\n");
    assert_eq!(repositories.check().await.severity, Some(DriftSeverity::High));
}

/// D1, D4, D5: rewritten history is told from new commits, twice; the tracker keeps it all, with what became of it.
#[tokio::test(flavor = "multi_thread")]
async fn rewritten_history_is_seen_each_time_and_tracked() {
    let repositories = Repositories::new();
    let workspace = repositories.world.workspace();
    let run = workspace.run();
    let look = async || {
        let before = workspace.drift_tracker(&run).await.unwrap();
        let report = workspace.check_drift(before.known.as_ref(), DriftOptions::default()).await.unwrap();
        workspace.track_drift(&run, &before, &report).await.unwrap();
        report
    };
    let start = git_in(&repositories.world.root(), &["rev-parse", "HEAD"]);
    assert!(look().await.events.is_empty());
    for round in 0..2 {
        git_in(&repositories.other(), &["reset", "-q", "--hard", "HEAD~1"]);
        repositories.push(&[("c", &format!("rewritten {round}\n"))], "rewritten");
        let report = look().await;
        assert!(report.is_rewritten(), "round {round}: {report:?}");
        assert_eq!(report.severity, Some(DriftSeverity::High));
        assert_eq!(advise(report.severity, true, Some(90), None), Advice::Stop);
        assert!(!look().await.is_rewritten(), "it is told once");
    }
    repositories.commit(&[("mine", "1\n")], "local");
    let report = look().await;
    assert!(matches!(&report.events[..], [DriftEvent::LocalChange { .. }]), "{report:?}");
    let tracker = workspace.drift_tracker(&run).await.unwrap();
    assert_eq!(tracker.start.as_ref(), Some(&start));
    let kinds: Vec<_> = tracker
        .tracked
        .iter()
        .map(|drift| match drift.event {
            DriftEvent::UpstreamChange { .. } => "upstream",
            DriftEvent::LocalChange { .. } => "local",
            DriftEvent::ForcePush { .. } => "force",
        })
        .collect();
    assert_eq!(kinds, ["force", "upstream", "force", "upstream", "local"]);
    assert_eq!(tracker.pending(), Some(DriftSeverity::High));
    workspace.resolve_drift(&run, Resolution::UserHandled).await.unwrap();
    let tracker = workspace.drift_tracker(&run).await.unwrap();
    assert_eq!(tracker.pending(), None);
    assert!(tracker.tracked.iter().all(|drift| drift.resolution.unwrap().0 == Resolution::UserHandled));
}

/// D1: where there is nothing to compare with, that is said, and what can be told is.
#[tokio::test(flavor = "multi_thread")]
async fn no_upstream_no_branch_no_remote_no_repository() {
    let repositories = Repositories::new();
    let root = repositories.world.root();
    repositories.push(&[("a", "theirs\n")], "theirs");
    // The remote is gone: what was known of it stands.
    std::fs::rename(repositories.world.scratch.join("remote.git"), repositories.world.scratch.join("gone.git"))
        .unwrap();
    let report = repositories.check().await;
    assert_eq!((report.behind, report.upstream.is_some()), (0, true));
    assert!(report.unasked.as_ref().unwrap().starts_with("origin could not be asked"), "{:?}", report.unasked);
    // Not asked at all.
    let quiet = DriftOptions { fetch: false, ..DriftOptions::default() };
    let report = repositories.world.workspace().check_drift(None, quiet).await.unwrap();
    assert_eq!(report.unasked.as_deref(), Some("origin wasn't asked"));
    // No branch.
    git_in(&root, &["checkout", "-q", "--detach"]);
    repositories.world.write("a", "mine\n");
    let report = repositories.check().await;
    assert_eq!((report.unasked.as_deref(), report.branch), (Some("no branch is checked out"), None));
    assert_eq!(report.uncommitted, ["a"]);
    // A branch that follows nothing.
    git_in(&root, &["checkout", "-q", "-b", "alone"]);
    assert_eq!(repositories.check().await.unasked.as_deref(), Some("branch alone follows nothing"));
    // A branch that follows another one here.
    git_in(&root, &["checkout", "-q", "-b", "follower"]);
    git_in(&root, &["branch", "-q", "--set-upstream-to=alone"]);
    assert_eq!(repositories.check().await.behind, 0);
    // A remote that is no address at all, and one that would run a command.
    git_in(&root, &["checkout", "-q", "main"]);
    for hostile in ["ext::sh -c 'touch ran' %G", "--upload-pack=touch ran"] {
        git_in(&root, &["config", "remote.origin.url", hostile]);
        let report = repositories.check().await;
        assert!(report.unasked.is_some(), "{hostile}");
        assert!(!repositories.world.has("ran"), "{hostile} ran a command");
    }
    // Nothing committed yet, and no repository at all.
    std::fs::remove_dir_all(root.join(".git")).unwrap();
    git_in(&root, &["init", "-q"]);
    let report = repositories.check().await;
    assert_eq!((report.head, report.severity), (None, None));
    std::fs::remove_dir_all(root.join(".git")).unwrap();
    let none = repositories.world.workspace().check_drift(None, DriftOptions::default()).await;
    assert!(matches!(none, Err(DriftError::NoRepository { .. })), "{none:?}");
}

/// D1: a shallow clone, a second working tree, a repository inside another.
#[tokio::test(flavor = "multi_thread")]
async fn shallow_clones_working_trees_and_submodules() {
    let repositories = Repositories::new();
    let base = repositories.world.scratch.path().to_owned();
    let root = repositories.world.root();
    git_in(&root, &["worktree", "add", "-q", "-b", "second", "../second", "origin/main"]);
    git_in(&base.join("second"), &["branch", "-q", "--set-upstream-to=origin/main"]);
    std::fs::remove_dir_all(base.join("shallow")).ok();
    let url = format!("file://{}", base.join("remote.git").display());
    git_in(&base, &["clone", "-q", "--depth", "1", &url, "shallow"]);
    repositories.push(&[("a", &changed(1, "theirs"))], "theirs");
    for folder in ["second", "shallow"] {
        std::fs::write(base.join(folder).join("a"), changed(1, "mine")).unwrap();
        let before = look(&base.join("work/.git"));
        let shallow = look(&base.join("shallow/.git"));
        let workspace = piton_workspace::Workspace::open(
            &crate::world::context(&repositories.world.store),
            &base.join(folder),
            repositories.world.options.clone(),
        )
        .unwrap();
        let report = workspace.check_drift(None, DriftOptions::default()).await.unwrap();
        assert_eq!((report.behind, report.severity), (1, Some(DriftSeverity::High)), "{folder}: {report:?}");
        assert_eq!(look(&base.join("work/.git")), before, "{folder}");
        assert_eq!(look(&base.join("shallow/.git")), shallow, "{folder}");
    }
    // A repository inside: only the commit that is recorded for it counts.
    git_in(&repositories.other(), &["submodule", "--quiet", "add", &url, "inner"]);
    repositories.push(&[], "inner");
    git_in(&root, &["pull", "-q", "--ff-only"]);
    git_in(&root, &["submodule", "--quiet", "update", "--init"]);
    repositories.world.write("inner/a", "changed inside\n");
    let report = repositories.check().await;
    assert_eq!((report.behind, report.severity, report.uncommitted.len()), (0, None, 0), "{report:?}");
}

/// Bad input: hooks, filters and the file system monitor of a repository are never run by looking at it.
#[tokio::test(flavor = "multi_thread")]
async fn a_hostile_repository_runs_nothing() {
    let repositories = Repositories::new();
    let root = repositories.world.root();
    let canary = repositories.world.scratch.join("canary");
    let script = repositories.world.scratch.join("script");
    std::fs::write(&script, format!("#!/bin/sh\ntouch {}\ncat\n", canary.display())).unwrap();
    let script = script.to_str().unwrap();
    std::fs::set_permissions(script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let set = |key: &str| git_in(&root, &["config", key, script]);
    for key in [
        "core.fsmonitor",
        "filter.evil.clean",
        "filter.evil.smudge",
        "filter.evil.process",
        "filter.a.b.clean",
        "diff.external",
        "diff.evil.command",
        "diff.evil.textconv",
        "core.pager",
        "core.editor",
        "core.askPass",
        "credential.helper",
        "core.alternateRefsCommand",
        "uploadpack.packObjectsHook",
        "gpg.program",
        "core.sshCommand",
    ] {
        set(key);
    }
    git_in(&root, &["config", "core.hooksPath", repositories.world.scratch.join("hooks").to_str().unwrap()]);
    std::fs::create_dir(repositories.world.scratch.join("hooks")).unwrap();
    for hook in ["post-index-change", "reference-transaction", "pre-auto-gc", "fsmonitor-watchman", "post-checkout"] {
        std::fs::copy(script, repositories.world.scratch.join("hooks").join(hook)).unwrap();
    }
    repositories.world.write(".gitattributes", "* filter=evil diff=evil\n*.x filter=a.b\n");
    repositories.world.write("a", changed(1, "mine"));
    repositories.push(&[("a", &changed(1, "theirs"))], "theirs");
    let before = repositories.git_files();
    let report = repositories.check().await;
    assert_eq!(report.severity, Some(DriftSeverity::High));
    assert!(!canary.exists(), "something was run");
    assert_eq!(repositories.git_files(), before);
    // The negative control: git's usual way to look does run it.
    let status = Command::new("git").args(["status", "--short"]).current_dir(&root).output().unwrap();
    assert!(status.status.success() && canary.exists(), "the trap doesn't work");
}

/// A remote that never answers is given up.
#[tokio::test(flavor = "multi_thread")]
async fn a_remote_that_never_answers_is_given_up() {
    let repositories = Repositories::new();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("git://{}/x", listener.local_addr().unwrap());
    git_in(&repositories.world.root(), &["config", "remote.origin.url", &url]);
    let options = DriftOptions { patience: Duration::from_millis(300), ..DriftOptions::default() };
    let report = repositories.world.workspace().check_drift(None, options).await.unwrap();
    assert!(report.unasked.unwrap().contains("took longer"));
}

/// D3: the permitted rebase gives what git's own gives; its undo puts git's files back to the byte.
#[tokio::test(flavor = "multi_thread")]
async fn a_rebase_is_gits_and_its_undo_is_exact() {
    let repositories = Repositories::new();
    let root = repositories.world.root();
    repositories.commit(&[("a", &changed(9, "mine")), ("mine", "1\n")], "mine \u{fc}\n\nwith a body");
    repositories.commit(&[("b", &changed(5, "mine"))], "more");
    repositories.push(&[("a", &changed(1, "theirs")), ("theirs", "1\n")], "theirs");
    repositories.world.write("untracked", "stays\n");
    let (git_before, files_before) = (repositories.git_files(), look(&root));
    let workspace = repositories.world.workspace();
    let test = "grep -q theirs a && grep -q mine a && test -f theirs && test -f mine";
    let done = workspace.rebase(DriftOptions::default(), Some(test.to_owned())).await.unwrap();
    assert_eq!(done.commits, 2);
    assert_eq!(git_in(&root, &["status", "--porcelain"]), "?? untracked");
    assert_eq!(git_in(&root, &["log", "--format=%an %s", "-3"]), "Tess T more\nTess T mine \u{fc}\nTess T theirs");
    git_in(&root, &["fsck", "--strict"]);
    let ours = git_in(&root, &["rev-parse", "HEAD^{tree}", "HEAD~1^{tree}"]);
    workspace.undo_rebase().await.unwrap();
    // `status` and `fsck` above may have refreshed the index; the bytes that were kept came back all the same.
    assert_eq!(repositories.git_files(), git_before);
    assert_eq!(look(&root), files_before);
    git_in(&root, &["pull", "-q", "--rebase"]);
    assert_eq!(git_in(&root, &["rev-parse", "HEAD^{tree}", "HEAD~1^{tree}"]), ours);
    let nothing = workspace.undo_rebase().await;
    assert!(matches!(nothing, Err(DriftError::Refused { .. })), "{nothing:?}");
}

/// D3: without a passing test, with conflicts, with work that isn't committed, nothing is left changed.
#[tokio::test(flavor = "multi_thread")]
async fn a_rebase_that_does_not_work_out_leaves_no_trace() {
    let repositories = Repositories::new();
    let root = repositories.world.root();
    let workspace = repositories.world.workspace();
    let refused = async |why: &str| {
        let before = (repositories.git_files(), look(&root));
        let outcome = workspace.rebase(DriftOptions::default(), None).await;
        assert!(matches!(&outcome, Err(DriftError::Refused { why: said }) if said.contains(why)), "{why}: {outcome:?}");
        assert_eq!((repositories.git_files(), look(&root)), before, "{why}");
    };
    refused("nothing new").await;
    repositories.commit(&[("a", &changed(9, "mine"))], "mine");
    repositories.push(&[("a", &changed(1, "theirs"))], "theirs");
    let before = (repositories.git_files(), look(&root));
    let failed = workspace.rebase(DriftOptions::default(), Some("exit 3".to_owned())).await;
    assert!(matches!(failed, Err(DriftError::TestFailed { code: 3 })), "{failed:?}");
    assert_eq!((repositories.git_files(), look(&root)), before);
    // And it can be tried again.
    workspace.rebase(DriftOptions::default(), Some("true".to_owned())).await.unwrap();
    workspace.undo_rebase().await.unwrap();
    assert_eq!((repositories.git_files(), look(&root)), before);
    repositories.world.write("b", "not committed\n");
    refused("b has changes that aren't committed").await;
    git_in(&root, &["checkout", "-q", "b"]);
    repositories.world.write(".gitattributes", "a filter=lfs\n");
    refused("a goes through a filter").await;
    repositories.world.remove(".gitattributes");
    repositories.commit(&[("a", &changed(1, "mine too"))], "the same line");
    refused("the same lines").await;
    git_in(&root, &["checkout", "-q", "--detach"]);
    refused("no branch is checked out").await;
    // Something was built on it: the undo would lose it.
    git_in(&root, &["checkout", "-q", "main"]);
    git_in(&root, &["reset", "-q", "--hard", "HEAD~1"]);
    workspace.rebase(DriftOptions::default(), None).await.unwrap();
    repositories.commit(&[("later", "1\n")], "later");
    let late = workspace.undo_rebase().await;
    assert!(matches!(&late, Err(DriftError::Refused { why }) if why.contains("moved since")), "{late:?}");
}

/// No link in the place of what is kept for the undo leads a write elsewhere, and no branch whose name a file beside another's
/// could have is touched. The negative control is a write by path, which does overwrite what the link leads to.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_kept_of_a_rebase_goes_through_no_link() {
    let repositories = Repositories::new();
    let root = repositories.world.root();
    repositories.commit(&[("a", &changed(9, "mine"))], "mine");
    repositories.push(&[("a", &changed(1, "theirs"))], "theirs");
    git_in(&root, &["branch", "main.piton"]);
    let before = (repositories.git_files(), look(&root));
    let workspace = repositories.world.workspace();
    let (canary, state) = (repositories.world.scratch.join("canary"), &repositories.world.options.state);
    std::fs::write(&canary, "alive").unwrap();
    for name in ["rebase", "rebase.new", "rebase-0", "rebase-0.new", "rebase-pack"] {
        std::os::unix::fs::symlink(&canary, state.join(name)).unwrap();
    }
    workspace.rebase(DriftOptions::default(), None).await.unwrap();
    assert_eq!(std::fs::read_to_string(&canary).unwrap(), "alive");
    workspace.undo_rebase().await.unwrap();
    assert_eq!((repositories.git_files(), look(&root)), before);
    let left = std::fs::read_dir(state).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let left: Vec<String> = left.filter(|name| name.starts_with("rebase")).collect();
    assert!(left.is_empty(), "{left:?}");
    std::os::unix::fs::symlink(&canary, state.join("rebase")).unwrap();
    std::fs::write(state.join("rebase"), "overwritten").unwrap();
    assert_eq!(std::fs::read_to_string(&canary).unwrap(), "overwritten");
}
