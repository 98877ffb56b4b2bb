//! Where a folder has been. Runs name their folder by its path; when a folder is moved together with its store, what
//! was done at its old path is still its own.
//!
//! `places.json` beside a folder's own store lists the paths at which the store was found to be that folder's. Whether
//! a new path is the same folder is decided once, when it is first seen there: by its identity, or because nothing is
//! left at the old paths. So neither a copy of the folder nor a run of another machine is taken for its past. Beside an
//! encrypted store the list is sealed.

use std::path::{Path, PathBuf};

use piton_store::Hashing;
use serde::{Deserialize, Serialize};

use super::identity::{Identity, StoredPath};
use super::private;
use crate::failure::Failure;

/// The newest version of `places.json`.
const FORMAT: u32 = 1;
pub(super) const RECORD: &str = "places.json";

/// What `places.json` holds, oldest first.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Places {
    format: u32,
    places: Vec<Seen>,
}

/// A path, and which folder was there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Seen {
    path: StoredPath,
    #[serde(flatten)]
    identity: Identity,
}

/// The paths of the working folder, now and before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Residence {
    /// Which machine this is, if the store is shared by several.
    machine: Option<String>,
    /// Where it is now.
    now: PathBuf,
    /// Where it was, oldest first.
    before: Vec<PathBuf>,
    /// What isn't recorded yet.
    new: Vec<Seen>,
}

impl Residence {
    /// A folder that has only ever been where it is, as far as is known.
    pub fn only(folder: &Path) -> Self {
        Self { machine: None, now: folder.to_owned(), before: Vec::new(), new: Vec::new() }
    }

    /// The same on this machine, in a store that several share.
    pub(super) fn shared(folder: &Path) -> Self {
        let machine = rustix::system::uname().nodename().to_string_lossy().into_owned();
        Self { machine: Some(machine), ..Self::only(folder) }
    }

    /// Which machine this is, if the store is shared by several.
    pub fn machine(&self) -> Option<&str> {
        self.machine.as_deref()
    }

    /// The places of `folder`, which is `owner` or inside it; the store beside which they are kept is the owner's.
    pub(super) fn find(beside: &Path, hashing: &Hashing, owner: &Path, folder: &Path) -> Self {
        let Some(identity) = Identity::at(owner) else { return Self::only(folder) };
        let old = read(beside, hashing);
        let new = settled(old.clone(), owner, identity);
        let below = folder.strip_prefix(owner).unwrap_or(Path::new(""));
        let places = new.iter().map(|seen| PathBuf::from(&seen.path)).filter(|place| place != owner);
        let inside = |place: PathBuf| if below.as_os_str().is_empty() { place } else { place.join(below) };
        let before = places.map(inside).collect();
        Self { machine: None, now: folder.to_owned(), before, new: if old == new { Vec::new() } else { new } }
    }

    /// Records the owner's place if it is a new one.
    pub(super) fn keep(&self, beside: &Path, hashing: &Hashing) {
        if self.new.is_empty() {
            return;
        }
        if let Ok(text) = serde_json::to_vec_pretty(&Places { format: FORMAT, places: self.new.clone() }) {
            // On a read-only disk the places are known all the same, just not recorded.
            let sealed = hashing.seal_beside(RECORD, &[&text]);
            let _ = private::write(&beside.join(RECORD), sealed.as_deref().unwrap_or(&text));
        }
    }

    /// The path by which the store knows the folder: the first one, so that what goes by it goes on after a move.
    pub fn known_as(&self) -> &Path {
        self.before.first().unwrap_or(&self.now)
    }

    /// Where it was before.
    pub fn before(&self) -> &[PathBuf] {
        &self.before
    }

    /// The paths as runs name them: sessions of files in a shared store with the machine before it, runs of documents, which
    /// any machine may drive, without.
    pub fn names(&self) -> Vec<String> {
        let paths = std::iter::once(&self.now).chain(&self.before).map(|path| path.to_string_lossy().into_owned());
        let here = self.machine.iter().map(|machine| format!("{machine}:{}", self.now.to_string_lossy()));
        here.chain(paths).collect()
    }

    /// Whether a run that names this folder was made here.
    pub fn has(&self, folder: Option<&str>) -> bool {
        folder.is_some_and(|folder| self.names().iter().any(|name| name == folder))
    }
}

/// The path at which the owner of a store was last seen; `None` if that can't be read.
pub(super) fn last(beside: &Path, hashing: &Hashing) -> Option<PathBuf> {
    read(beside, hashing).last().map(|seen| PathBuf::from(&seen.path))
}

/// Writes down that the store is that of `folder` now, because its user says so.
pub(super) fn append(beside: &Path, hashing: &Hashing, folder: &Path) -> Result<(), Failure> {
    let identity =
        Identity::at(folder).ok_or_else(|| Failure::fixable(format!("{} isn't a folder", folder.display())))?;
    let mut new = read(beside, hashing);
    new.retain(|seen| PathBuf::from(&seen.path) != folder);
    new.push(Seen { path: folder.into(), identity });
    Residence { new, ..Residence::only(folder) }.keep(beside, hashing);
    Ok(())
}

fn read(beside: &Path, hashing: &Hashing) -> Vec<Seen> {
    let text = std::fs::read(beside.join(RECORD)).ok();
    let text = match hashing.is_keyed() {
        true => text.and_then(|sealed| hashing.open_beside(RECORD, sealed.into())).map(Vec::from),
        false => text,
    };
    let places = text.and_then(|text| serde_json::from_slice::<Places>(&text).ok());
    places.filter(|places| places.format <= FORMAT).map(|places| places.places).unwrap_or_default()
}

/// The places with the one at which the owner is now.
fn settled(mut places: Vec<Seen>, owner: &Path, identity: Identity) -> Vec<Seen> {
    let now = Seen { path: owner.into(), identity };
    if let Some(known) = places.iter_mut().find(|seen| seen.path == now.path) {
        *known = now;
        return places;
    }
    let is_gone = |seen: &Seen| PathBuf::from(&seen.path).symlink_metadata().is_err();
    if !places.iter().any(|seen| seen.identity.proves(&identity)) && !places.iter().all(is_gone) {
        // A copy, or a store that was carried into another folder: its past isn't this folder's.
        places.clear();
    }
    places.push(now);
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    struct World(tempfile::TempDir);

    impl World {
        fn new() -> Self {
            Self(tempfile::tempdir().unwrap())
        }

        fn path(&self, name: &str) -> PathBuf {
            self.0.path().join(name)
        }

        fn folder(&self, name: &str) -> PathBuf {
            std::fs::create_dir_all(self.path(name)).unwrap();
            self.path(name)
        }

        /// As a verb does that changes something.
        fn find(&self, folder: &Path) -> Residence {
            let found = Residence::find(&self.folder("store"), &Hashing::PLAIN, folder, folder);
            found.keep(&self.folder("store"), &Hashing::PLAIN);
            Residence { new: Vec::new(), ..found }
        }
    }

    #[test]
    fn a_moved_folder_has_its_old_places_whatever_is_there_now() {
        let world = World::new();
        let (a, b) = (world.folder("a"), world.path("b"));
        assert_eq!(world.find(&a), Residence::only(&a));
        std::fs::rename(&a, &b).unwrap();
        world.folder("a");
        let moved = world.find(&b);
        assert_eq!((moved.known_as(), moved.before()), (a.as_path(), std::slice::from_ref(&a)));
        assert!(moved.has(a.to_str()) && moved.has(b.to_str()) && !moved.has(None));
        let sub = Residence::find(&world.folder("store"), &Hashing::PLAIN, &b, &b.join("sub"));
        assert_eq!(sub.before(), [a.join("sub")]);
    }

    #[test]
    fn a_folder_that_came_from_another_disk_has_them_if_nothing_is_left_there() {
        let world = World::new();
        let (a, b) = (world.folder("a"), world.folder("b"));
        world.find(&a);
        std::fs::remove_dir(&a).unwrap();
        assert_eq!(world.find(&b).before(), std::slice::from_ref(&a));
        world.folder("a");
        assert_eq!(world.find(&b).before(), [a], "once decided it stays so");
    }

    #[test]
    fn a_copy_begins_anew() {
        let world = World::new();
        world.find(&world.folder("a"));
        let copy = world.folder("b");
        assert_eq!(world.find(&copy), Residence::only(&copy));
        std::fs::remove_dir(world.path("a")).unwrap();
        assert_eq!(world.find(&copy), Residence::only(&copy));
    }
}
