//! Folders and files that only their owner can read, and that are ours or not used at all.

use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use crate::failure::Failure;

/// Checks that `folder` is a folder of this user's. `false` if there is nothing at that path.
pub fn check(folder: &Path) -> Result<bool, Failure> {
    let shown = folder.display();
    let metadata = match folder.symlink_metadata() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(Failure::fixable(format!("can't look at {shown}")).because(&error)),
        Ok(metadata) => metadata,
    };
    if !metadata.is_dir() {
        return Err(Failure::refused(format!("{shown} is not a folder"))
            .hint("piton keeps stores there and follows no links; move it away, or name a store with `--store URL`."));
    }
    let (owner, user) = (metadata.uid(), rustix::process::geteuid().as_raw());
    if owner != user {
        return Err(Failure::refused(format!("{shown} belongs to user {owner}, not to you (user {user})"))
            .hint("a store that another user can write to is not used; name one of your own with `--store URL`."));
    }
    Ok(true)
}

/// Closes a folder of this user's to other users if it is open to them.
pub fn close(folder: &Path) -> Result<(), Failure> {
    let shown = folder.display();
    if folder.symlink_metadata().is_ok_and(|data| data.mode() & 0o077 != 0)
        && let Err(error) = std::fs::set_permissions(folder, Permissions::from_mode(0o700))
    {
        return Err(Failure::refused(format!("{shown} is open to other users and can't be closed"))
            .because(&error)
            .hint(format!("run `chmod 700 {shown}`, or name another store with `--store URL`.")));
    }
    Ok(())
}

/// Makes `folder` and what is missing above it, owner-only, durably.
pub fn create(folder: &Path) -> Result<(), Failure> {
    let missing: Vec<_> = folder.ancestors().take_while(|ancestor| !ancestor.exists()).collect();
    let made = DirBuilder::new().recursive(true).mode(0o700).create(folder);
    let synced = made.and_then(|()| missing.iter().filter_map(|path| path.parent()).try_for_each(sync));
    synced.map_err(|error| cant_write(folder, &error))?;
    check(folder)?;
    close(folder)
}

/// Writes a file that only its owner can read, whole or not at all, durably.
pub fn write(path: &Path, content: &[u8]) -> io::Result<()> {
    let folder = path.parent().ok_or_else(|| io::Error::other("a file has a folder"))?;
    let mut name = path.file_name().ok_or_else(|| io::Error::other("a file has a name"))?.to_owned();
    name.push(format!(".{}.new", std::process::id()));
    let beside = folder.join(name);
    let written = (|| {
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&beside)?;
        file.write_all(content)?;
        file.sync_all()?;
        std::fs::rename(&beside, path)
    })();
    match written {
        Ok(()) => sync(folder),
        Err(error) => {
            let _ = std::fs::remove_file(&beside);
            Err(error)
        }
    }
}

/// Makes the names in a folder durable.
pub fn sync(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

/// What to say when `path` can't be written.
pub fn cant_write(path: &Path, error: &io::Error) -> Failure {
    Failure::fixable(format!("can't write to {}", path.display()))
        .because(error)
        .hint("name a store elsewhere with `--store URL` or PITON_STORE, or set XDG_STATE_HOME.")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::FailureKind;

    fn mode(path: &Path) -> u32 {
        path.metadata().unwrap().mode() & 0o777
    }

    #[test]
    fn what_is_made_is_for_the_owner_only() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("a/b");
        create(&folder).unwrap();
        write(&folder.join("f"), b"1").unwrap();
        write(&folder.join("f"), b"2").unwrap();
        assert_eq!((mode(&root.path().join("a")), mode(&folder), mode(&folder.join("f"))), (0o700, 0o700, 0o600));
        assert_eq!(std::fs::read(folder.join("f")).unwrap(), b"2");
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1, "nothing is left beside it");
    }

    #[test]
    fn an_open_folder_is_closed() {
        let root = tempfile::tempdir().unwrap();
        std::fs::set_permissions(root.path(), Permissions::from_mode(0o777)).unwrap();
        assert!(check(root.path()).unwrap());
        assert_eq!(mode(root.path()), 0o777, "to look changes nothing");
        close(root.path()).unwrap();
        assert_eq!(mode(root.path()), 0o700);
    }

    #[test]
    fn links_files_and_the_folders_of_others_are_refused() {
        let root = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink("/tmp", root.path().join("link")).unwrap();
        std::fs::write(root.path().join("file"), "").unwrap();
        for name in ["link", "file"] {
            assert_eq!(check(&root.path().join(name)).unwrap_err().kind(), FailureKind::Refused, "{name}");
        }
        assert!(!check(&root.path().join("none")).unwrap());
        // Root can give a folder away; for other users the top folder is root's.
        let mut other = Path::new("/").to_owned();
        if rustix::process::geteuid().is_root() {
            other = root.path().join("other");
            std::fs::create_dir(&other).unwrap();
            std::os::unix::fs::chown(&other, Some(12345), None).unwrap();
        }
        assert_eq!(check(&other).unwrap_err().kind(), FailureKind::Refused);
    }
}
