//! What no checkpoint has, though it lies in the folder: said in one line, with the way to protect it.

use piton_workspace::{Reason, RelPath, Snapshot, Workspace};

use crate::failure::Failure;
use crate::words::typed;

/// How many names the line has.
const NAMED: usize = 3;

/// What a snapshot saw and didn't capture, in one line; `None` if there is nothing that a user could miss.
pub async fn unprotected(workspace: &Workspace, snapshot: Snapshot) -> Result<Option<String>, Failure> {
    Ok(line(&workspace.excluded(snapshot).await?))
}

fn line(excluded: &[(RelPath, Reason)]) -> Option<String> {
    // git keeps what is its own, and so does the store.
    let is_own = |reason: &Reason| matches!(reason, Reason::Git | Reason::Store | Reason::Temporary);
    let missed: Vec<_> = excluded.iter().filter(|(_, reason)| !is_own(reason)).collect();
    let (first, more) = (missed.first()?, missed.len().saturating_sub(NAMED));
    let mut names = missed.iter().take(NAMED).map(|(path, _)| path.to_string()).collect::<Vec<_>>().join(", ");
    if more > 0 {
        names = format!("{names} and {more} more");
    }
    let has = |wanted: &[Reason]| missed.iter().any(|(_, reason)| wanted.contains(reason));
    let mut ways = Vec::new();
    if has(&[Reason::IgnoredFolder, Reason::IgnoredFile]) {
        ways.push("`--include-ignored` protects what ignore files hide".to_owned());
    }
    if let Some((path, _)) = missed.iter().find(|(_, reason)| *reason == Reason::Mount) {
        let there = typed(&["-C", &path.to_string()]);
        ways.push(format!("`piton {there} guard -- PROGRAM` protects what is on another file system"));
    }
    if has(&[Reason::Pitonignore]) {
        ways.push("a line less in .pitonignore protects what it names".to_owned());
    }
    if ways.is_empty() {
        ways.push(format!("it is {}", first.1.as_str()));
    }
    Some(format!("not protected: {names}; {}; `piton status --excluded` names all", ways.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(path: &str, reason: Reason) -> (RelPath, Reason) {
        (RelPath::new(path.as_bytes()).unwrap(), reason)
    }

    #[test]
    fn what_is_not_protected_is_one_line_with_the_way() {
        assert_eq!(line(&[at(".git", Reason::Git)]), None);
        let said = line(&[at(".git", Reason::Git), at("data", Reason::IgnoredFolder), at("disk", Reason::Mount)]);
        assert_eq!(
            said.as_deref(),
            Some(
                "not protected: data, disk; `--include-ignored` protects what ignore files hide, `piton -C disk guard -- PROGRAM` \
                 protects what is on another file system; `piton status --excluded` names all"
            )
        );
        let many: Vec<_> = ["a", "b", "c", "d"].map(|name| at(name, Reason::Special)).into();
        let said = line(&many).unwrap();
        assert!(said.starts_with("not protected: a, b, c and 1 more; it is "), "{said}");
    }
}
