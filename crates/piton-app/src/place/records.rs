//! The stores under the user's state directory: one subfolder each, with a `folder.json` that says which
//! working folder it belongs to.
//!
//! A folder is found by its identity first, then by its path. So a moved folder keeps its store, and so
//! does one that was deleted and made again at the same place (`rm -rf` must not take the safety net
//! away). At most one record has a given path.
//!
//! Of the path only a digest is kept, and the subfolder is named by one, too: the store may be encrypted, and the name
//! of the folder is the user's.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::identity::Identity;
use super::private;
use crate::failure::Failure;

/// The newest version of `folder.json`.
const FORMAT: u32 = 1;
const RECORD: &str = "folder.json";

/// What `folder.json` holds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Record {
    format: u32,
    /// The digest of where the folder was last seen; `None` once another folder has taken its place.
    path: Option<String>,
    #[serde(flatten)]
    identity: Identity,
    created_at: String,
}

/// The subfolders of `$XDG_STATE_HOME/piton`.
pub(super) struct Records {
    root: PathBuf,
    found: Vec<(PathBuf, Record)>,
    /// Subfolders whose record can't be read.
    pub(super) unreadable: Vec<PathBuf>,
}

impl Records {
    /// Every subfolder, whether its record can be read or not.
    pub(super) fn subfolders(&self) -> impl Iterator<Item = &Path> {
        self.found.iter().map(|(subfolder, _)| subfolder.as_path()).chain(self.unreadable.iter().map(PathBuf::as_path))
    }

    /// Reads all records. None if the state directory doesn't exist; refused if it isn't ours.
    pub(super) fn read(root: &Path) -> Result<Self, Failure> {
        let mut records = Self { root: root.to_owned(), found: Vec::new(), unreadable: Vec::new() };
        if !private::check(root)? {
            return Ok(records);
        }
        let listed = std::fs::read_dir(root).and_then(Iterator::collect::<Result<Vec<_>, _>>);
        let listed =
            listed.map_err(|error| Failure::fixable(format!("can't list {}", root.display())).because(&error))?;
        for entry in listed {
            // Subfolders that are still being made have a dot in front.
            if entry.file_name().as_encoded_bytes().starts_with(b".") || !entry.path().is_dir() {
                continue;
            }
            let text = std::fs::read(entry.path().join(RECORD)).ok();
            match text.and_then(|text| serde_json::from_slice::<Record>(&text).ok()) {
                Some(record) if record.format <= FORMAT => records.found.push((entry.path(), record)),
                _ => records.unreadable.push(entry.path()),
            }
        }
        records.found.sort_by(|a, b| a.0.cmp(&b.0));
        records.unreadable.sort();
        Ok(records)
    }

    /// The subfolder of the working folder `path` (canonical), if it has one.
    pub(super) fn find(&self, path: &Path) -> Option<&Path> {
        Some(&self.found[self.place(path, &Identity::at(path)?)?].0)
    }

    fn place(&self, path: &Path, identity: &Identity) -> Option<usize> {
        let same = self.found.iter().position(|(_, record)| record.identity.proves(identity));
        same.or_else(|| self.found.iter().position(|(subfolder, record)| record.path == digest(subfolder, path)))
    }

    /// Records where the working folder `path` (canonical) is now, if it has a subfolder and was moved, and takes the path
    /// away from all others.
    ///
    /// Done as well as can be: on a read-only disk the store is found all the same, just not recorded.
    pub(super) fn settle(&mut self, path: &Path) {
        let Some(identity) = Identity::at(path) else { return };
        let Some(place) = self.place(path, &identity) else { return };
        for (other, (subfolder, record)) in self.found.iter_mut().enumerate() {
            let here = digest(subfolder, path);
            let new = match other == place {
                true => Record { path: here, identity, ..record.clone() },
                false if record.path == here => Record { path: None, ..record.clone() },
                false => continue,
            };
            if new == *record {
                continue;
            }
            if let Ok(text) = serde_json::to_vec_pretty(&new) {
                let _ = private::write(&subfolder.join(RECORD), &text);
            }
            *record = new;
        }
    }

    /// The unreadable subfolder that `path` would get, if there is one: then its store is most likely
    /// there, and must not be passed over.
    pub(super) fn obscured(&self, path: &Path) -> Option<&PathBuf> {
        let name = subfolder_name(path, &Identity::at(path)?);
        self.unreadable.iter().find(|subfolder| subfolder.ends_with(&name))
    }

    /// The nearest folder above `path` that has a store here.
    pub(super) fn above(&self, path: &Path) -> Option<PathBuf> {
        path.ancestors().skip(1).find(|ancestor| self.find(ancestor).is_some()).map(Path::to_owned)
    }

    /// Makes a subfolder that of another working folder (canonical).
    pub(super) fn give(&mut self, subfolder: &Path, path: &Path) -> Result<(), Failure> {
        let identity =
            Identity::at(path).ok_or_else(|| Failure::fixable(format!("{} isn't a folder", path.display())))?;
        let found = self.found.iter_mut().find(|(known, _)| known == subfolder);
        let (_, record) = found.ok_or_else(|| {
            Failure::fixable(format!("{}/{RECORD} can't be read", subfolder.display())).hint("nothing was changed.")
        })?;
        let new = Record { path: digest(subfolder, path), identity, ..record.clone() };
        let text = serde_json::to_vec_pretty(&new)
            .map_err(|error| Failure::internal("a record has no JSON form").because(&error))?;
        let target = subfolder.join(RECORD);
        private::write(&target, &text).map_err(|error| private::cant_write(&target, &error))?;
        *record = new;
        Ok(())
    }

    /// Makes the subfolder of the working folder `path` (canonical). If another process was faster, its
    /// subfolder it is.
    pub(super) fn create(&mut self, path: &Path, created_at: String) -> Result<PathBuf, Failure> {
        let metadata = path
            .metadata()
            .map_err(|error| Failure::fixable(format!("can't look at {}", path.display())).because(&error))?;
        let identity = Identity::of(&metadata);
        let name = subfolder_name(path, &identity);
        let target = self.root.join(&name);
        let record = Record { format: FORMAT, path: digest(&target, path), identity, created_at };
        let text = serde_json::to_vec_pretty(&record)
            .map_err(|error| Failure::internal("a record has no JSON form").because(&error))?;

        private::create(&self.root)?;
        let beside = self.root.join(format!(".{name}.{}.new", std::process::id()));
        private::create(&beside)?;
        let made = private::write(&beside.join(RECORD), &text)
            .and_then(|()| std::fs::rename(&beside, &target))
            .and_then(|()| private::sync(&self.root));
        if let Err(error) = made {
            let _ = std::fs::remove_dir_all(&beside);
            // A folder with something in it can't be replaced: another process made it meanwhile.
            if !private::check(&target)? {
                return Err(private::cant_write(&target, &error));
            }
        }
        Ok(target)
    }
}

/// What stands for a path in the record of a subfolder. The name of the subfolder is the salt.
fn digest(subfolder: &Path, path: &Path) -> Option<String> {
    let mut hasher = blake3::Hasher::new();
    hasher.update(subfolder.file_name()?.as_encoded_bytes()).update(b"/").update(path.as_os_str().as_encoded_bytes());
    Some(hasher.finalize().to_hex().to_string())
}

/// A name that no other folder gets.
fn subfolder_name(path: &Path, identity: &Identity) -> String {
    let mut hasher = blake3::Hasher::new();
    hasher.update(path.as_os_str().as_encoded_bytes());
    for number in [identity.device, identity.inode, identity.born.unwrap_or(0)] {
        hasher.update(&number.to_le_bytes());
    }
    hasher.finalize().to_hex()[..16].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    struct World(tempfile::TempDir);

    impl World {
        fn new() -> Self {
            Self(tempfile::tempdir().unwrap())
        }

        fn folder(&self, name: &str) -> PathBuf {
            let path = self.0.path().join(name);
            std::fs::create_dir_all(&path).unwrap();
            path.canonicalize().unwrap()
        }

        fn records(&self) -> Records {
            Records::read(&self.0.path().join("state/piton")).unwrap()
        }

        fn create(&self, folder: &Path) -> PathBuf {
            self.records().create(folder, "2026-11-15T00:00:00.000Z".to_owned()).unwrap()
        }

        /// As a verb does that changes something.
        fn find(&self, folder: &Path) -> Option<PathBuf> {
            let mut records = self.records();
            let found = records.find(folder).map(Path::to_owned);
            records.settle(folder);
            found
        }
    }

    #[test]
    fn a_folder_finds_its_own_store_and_no_other() {
        let world = World::new();
        let (a, b) = (world.folder("a"), world.folder("b"));
        assert_eq!(world.find(&a), None);
        let store = world.create(&a);
        assert_eq!(world.find(&a), Some(store.clone()));
        assert_eq!(world.find(&b), None);
        assert_eq!(world.create(&a), store, "made twice it is the same");
        assert_eq!(world.records().above(&world.folder("a/x/y")), Some(a));
    }

    #[test]
    fn a_moved_folder_keeps_its_store_and_its_old_place_is_free() {
        let world = World::new();
        let a = world.folder("a");
        let store = world.create(&a);
        let b = a.with_file_name("b");
        std::fs::rename(&a, &b).unwrap();
        // Another folder at the old path before the moved one was seen again at its new one.
        let a = world.folder("a");
        assert_eq!(world.find(&b), Some(store.clone()));
        assert_eq!(world.find(&a), None);
        let other = world.create(&a);
        assert_ne!(other, store);
        assert_eq!((world.find(&a), world.find(&b)), (Some(other), Some(store)));
    }

    #[test]
    fn a_folder_made_again_at_the_same_place_keeps_its_store() {
        let world = World::new();
        let a = world.folder("a");
        let store = world.create(&a);
        std::fs::remove_dir(&a).unwrap();
        assert_eq!(world.find(&a), None, "there is no folder now");
        assert_eq!(world.find(&world.folder("a")), Some(store));
    }

    #[test]
    fn folders_that_swap_places_keep_their_stores() {
        let world = World::new();
        let (a, b) = (world.folder("a"), world.folder("b"));
        let (of_a, of_b) = (world.create(&a), world.create(&b));
        let aside = a.with_file_name("aside");
        std::fs::rename(&a, &aside).unwrap();
        std::fs::rename(&b, &a).unwrap();
        std::fs::rename(&aside, &b).unwrap();
        assert_eq!((world.find(&a), world.find(&b)), (Some(of_b.clone()), Some(of_a.clone())));
        // Once more, now from what was recorded on the way.
        assert_eq!((world.find(&a), world.find(&b)), (Some(of_b), Some(of_a)));
    }

    #[test]
    fn damaged_and_newer_records_are_listed_and_not_used() {
        let world = World::new();
        let a = world.folder("a");
        let store = world.create(&a);
        for text in ["{", r#"{"format":2}"#, ""] {
            std::fs::write(store.join(RECORD), text).unwrap();
            let records = world.records();
            assert_eq!(records.find(&a), None);
            assert_eq!(records.unreadable, std::slice::from_ref(&store));
            assert_eq!(records.obscured(&a), Some(&store));
            assert_eq!(records.obscured(&world.folder("b")), None);
        }
    }
}
