//! Where the store of a folder is.
//!
//! In this order: `--store URL`, `store` in the file that `--config` names, `PITON_STORE`, `.piton/` in the folder or above it if this user made it, the user's
//! state directory. The last is the default because an agent that runs `git clean -fdx` or `rm -rf` must not
//! take its own safety net away. Finding a store writes nothing; [`Surroundings::settle`] does what a verb that changes
//! something may do on the way.

mod identity;
pub mod keys;
#[cfg(feature = "objects")]
pub(crate) mod objects;
mod own;
#[cfg(feature = "postgres")]
pub(crate) mod postgres;
pub mod private;
mod records;
mod residence;
mod stores;

use std::borrow::Cow;
use std::fmt;
use std::path::{Path, PathBuf};

use piton_store::{Hashing, SecretFiles, without_secrets};

use crate::failure::Failure;
use crate::place::keys::KeySources;
use own::Own;
use records::Records;
pub use residence::Residence;
pub use stores::Kept;

/// The subfolder of the state directory that says which runs this user began with which configuration.
const CONFIGURED: &str = ".configured";

/// The folder that `init --here` makes.
const HERE: &str = ".piton";
/// The database inside a folder of ours.
const DATABASE: &str = "store.db";

/// All that decides where the store is. Read once, at the start.
#[derive(Clone, Default)]
pub struct Surroundings {
    /// `--store`.
    pub option: Option<String>,
    /// What the configuration says that the user named.
    pub configured: Option<String>,
    /// `PITON_STORE`.
    pub variable: Option<String>,
    /// `XDG_STATE_HOME`.
    pub state_home: Option<PathBuf>,
    /// `HOME`.
    pub home: Option<PathBuf>,
    /// The folder that is worked on, canonical: where the command was called, or the nearest one above with a store.
    pub folder: PathBuf,
    /// Where in it the command was called: names of files that the user gives are meant from there.
    pub below: PathBuf,
    /// `PITON_BUDGET`: how many bytes the store may take.
    pub budget: Option<u64>,
    /// Where the key of an encrypted store comes from.
    pub keys: KeySources,
    /// `PITON_SECRETS`: what becomes of files with keys and tokens in them.
    pub secrets: Option<SecretFiles>,
}

impl fmt::Debug for Surroundings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Surroundings")
            .field("folder", &self.folder)
            .field("named", &self.named())
            .finish_non_exhaustive()
    }
}

/// Why the store is where it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// `--store`.
    Option,
    /// The configuration that the user named.
    Configuration,
    /// `PITON_STORE`.
    Variable,
    /// `.piton/` in the folder or above it.
    Here,
    /// The user's state directory.
    State,
}

/// Where a store is, or would be.
#[derive(Clone, PartialEq, Eq)]
pub struct Place {
    /// Its URL, perhaps with a password.
    pub url: String,
    /// Why it is there.
    pub origin: Origin,
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Place").field("url", &self.shown()).field("origin", &self.origin).finish()
    }
}

impl Place {
    fn inside(folder: &Path, origin: Origin) -> Result<Self, Failure> {
        let path = folder.join(DATABASE);
        let text = path.to_str().ok_or_else(|| {
            Failure::fixable(format!("{} has a name that isn't Unicode", path.display()))
                .hint("name a store elsewhere with `--store URL`.")
        })?;
        Ok(Self { url: format!("sqlite:{text}"), origin })
    }

    /// Its URL for people: without a password.
    pub fn shown(&self) -> Cow<'_, str> {
        without_secrets(&self.url)
    }

    /// Whether the user named it, and not the folder.
    pub const fn is_named(&self) -> bool {
        matches!(self.origin, Origin::Option | Origin::Configuration | Origin::Variable)
    }

    /// The folder that a folder's own store is in.
    fn folder(&self) -> Option<&Path> {
        let own = matches!(self.origin, Origin::Here | Origin::State);
        Path::new(self.url.strip_prefix("sqlite:").filter(|_| own)?).parent()
    }

    /// Where a folder's own store keeps what belongs to the files, beside its database.
    fn beside(&self) -> Option<PathBuf> {
        Some(self.folder()?.join(format!("{DATABASE}-files")))
    }
}

/// Whether a store may be used by several machines.
pub fn is_shared(url: &str) -> bool {
    !["sqlite:", "file:", "memory:"].iter().any(|local| url.starts_with(local))
}

/// What there is for a folder.
#[derive(Debug)]
pub enum Found {
    /// A store, or the place that the user named for one.
    Place(Place),
    /// No store yet.
    Nothing {
        /// The nearest folder above that has one.
        above: Option<PathBuf>,
        /// Subfolders of the state directory whose record can't be read.
        unreadable: Vec<PathBuf>,
    },
}

impl Surroundings {
    /// The same for the folder that owns the one in which the command was called: the nearest one above that has a store, as
    /// git does it. A store that is named is for the folder itself; that of the whole home is for no folder in it.
    #[must_use]
    pub fn of_owner(self) -> Self {
        let is_named = self.named().is_some();
        let Some(records) = self.state().ok().and_then(|state| Records::read(&state).ok()).filter(|_| !is_named) else {
            return self;
        };
        let home = self.home.as_ref().map(|home| home.canonicalize().unwrap_or_else(|_| home.clone()));
        let is_wide = |folder: &Path| folder.parent().is_none() || Some(folder) == home.as_deref();
        // One that isn't to be used is refused when it is opened, and not passed over.
        let has_store = |folder: &Path| {
            folder.join(HERE).symlink_metadata().is_ok()
                || records.find(folder).is_some()
                || records.obscured(folder).is_some()
        };
        let owner = self.folder.ancestors().find(|folder| {
            let is_own = *folder == self.folder;
            (is_own || !is_wide(folder)) && has_store(folder)
        });
        match owner.map(Path::to_owned) {
            Some(owner) => {
                let below = self.folder.strip_prefix(&owner).map(Path::to_owned).unwrap_or_default();
                Self { folder: owner, below, ..self }
            }
            None => self,
        }
    }

    /// Finds the store of the folder.
    pub fn find(&self) -> Result<Found, Failure> {
        if let Some(place) = self.named() {
            return Ok(Found::Place(place));
        }
        if let Some(folder) = self.here()? {
            return Ok(Found::Place(Place::inside(&folder, Origin::Here)?));
        }
        let records = Records::read(&self.state()?)?;
        if let Some(subfolder) = records.find(&self.folder) {
            private::check(subfolder)?;
            return Ok(Found::Place(Place::inside(subfolder, Origin::State)?));
        }
        if let Some(subfolder) = records.obscured(&self.folder) {
            let shown = subfolder.display();
            return Err(Failure::refused(format!("{shown}/folder.json can't be read, and it should be this folder's"))
                .hint(format!("the store itself may be whole: use it with `--store sqlite:{shown}/{DATABASE}`.")));
        }
        let above = records.above(&self.folder);
        Ok(Found::Nothing { above, unreadable: records.unreadable })
    }

    /// The stores of all folders that have one in the state directory, and this folder's, wherever it is.
    pub fn find_all(&self) -> Result<Vec<Place>, Failure> {
        let mut places = Vec::new();
        if let Found::Place(place) = self.find()? {
            places.push(place);
        }
        for subfolder in Records::read(&self.state()?)?.subfolders() {
            private::check(subfolder)?;
            let place = Place::inside(subfolder, Origin::State)?;
            if subfolder.join(DATABASE).exists() && places.iter().all(|known| known.url != place.url) {
                places.push(place);
            }
        }
        Ok(places)
    }

    /// Finds the store of the folder, or makes a place for one outside the folder.
    pub fn find_or_create(&self, now: &str) -> Result<Place, Failure> {
        match self.find()? {
            Found::Place(place) => Ok(place),
            Found::Nothing { .. } => {
                let subfolder = Records::read(&self.state()?)?.create(&self.folder, now.to_owned())?;
                Place::inside(&subfolder, Origin::State)
            }
        }
    }

    /// Closes a store of the folder's own to other users, and records where the folder is now if it was moved. As well as
    /// can be: on a read-only disk the store is found all the same.
    pub fn settle(&self, place: &Place, hashing: &Hashing) -> Result<Residence, Failure> {
        if let Some(folder) = place.folder() {
            private::close(folder)?;
        }
        if place.origin == Origin::State {
            Records::read(&self.state()?)?.settle(&self.folder);
        }
        let (beside, residence) = self.residence_beside(place, hashing);
        if let Some(beside) = beside {
            residence.keep(&beside, hashing);
        }
        Ok(residence)
    }

    /// Makes `.piton/` inside the folder, where git ignores it.
    pub fn create_here(&self, now: &str) -> Result<Place, Failure> {
        if self.variable.is_some() {
            return Err(Failure::fixable("PITON_STORE is set, and would be used instead of a store inside the folder")
                .hint("unset PITON_STORE, then run `piton init --here` again."));
        }
        let folder = self.folder.join(HERE);
        let own = Own::of(&self.state()?);
        if !private::check(&folder)? {
            private::create(&folder)?;
            own.take(&folder, now)?;
        } else if !own.made(&folder) {
            return Err(own::foreign(&folder));
        }
        let ignore = folder.join(".gitignore");
        if !ignore.exists() {
            private::write(&ignore, b"*\n").map_err(|error| private::cant_write(&ignore, &error))?;
        }
        Place::inside(&folder, Origin::Here)
    }

    /// Whether there is a store inside the folder itself.
    pub fn has_store_here(&self) -> bool {
        self.folder.join(HERE).join(DATABASE).exists()
    }

    /// Whether there is nothing at the place of a store inside the folder.
    pub fn has_no_folder_here(&self) -> Result<bool, Failure> {
        Ok(!private::check(&self.folder.join(HERE))?)
    }

    /// The `.piton/` of the folder itself if this user didn't make it.
    pub fn foreign_here(&self) -> Result<Option<Place>, Failure> {
        let folder = self.folder.join(HERE);
        match private::check(&folder)? && !Own::of(&self.state()?).made(&folder) {
            true => Place::inside(&folder, Origin::Here).map(Some),
            false => Ok(None),
        }
    }

    /// The restores that were cut short in folders of the store at `place`: for each, what is kept of that folder.
    pub fn unfinished(&self, place: &Place) -> Vec<PathBuf> {
        let beside = place.beside();
        let folders = beside.iter().filter_map(|beside| std::fs::read_dir(beside).ok()).flatten().flatten();
        folders
            .map(|folder| folder.path())
            .filter(|folder| folder.join("restoring").symlink_metadata().is_ok())
            .collect()
    }

    /// Makes the store at `place` this user's. What was kept beside it is dropped: unfinished restores, reservations, what
    /// is remembered of files and of places.
    pub fn adopt(&self, place: &Place, now: &str) -> Result<(), Failure> {
        let folder = place.folder().ok_or_else(|| Failure::internal("a store inside a folder is in one"))?;
        for path in place.beside().into_iter().chain([folder.join(residence::RECORD)]) {
            let gone = match path.symlink_metadata() {
                Ok(data) if data.is_dir() => std::fs::remove_dir_all(&path),
                Ok(_) => std::fs::remove_file(&path),
                Err(_) => Ok(()),
            };
            gone.map_err(|error| private::cant_write(&path, &error))?;
        }
        private::close(folder)?;
        Own::of(&self.state()?).take(folder, now)
    }

    /// Where the working folder has been, as the store at `place` knows it. A store that several folders share by name
    /// says nothing of that.
    pub fn residence(&self, place: &Place, hashing: &Hashing) -> Residence {
        self.residence_beside(place, hashing).1
    }

    /// The same, and beside which store that is kept.
    fn residence_beside(&self, place: &Place, hashing: &Hashing) -> (Option<PathBuf>, Residence) {
        let own = match place.origin {
            Origin::Here | Origin::State => Some(place.clone()),
            // It may be the folder's own all the same.
            Origin::Option | Origin::Configuration | Origin::Variable => {
                let unnamed = Self { option: None, configured: None, variable: None, ..self.clone() };
                match unnamed.find() {
                    Ok(Found::Place(own)) if own.url == place.url => Some(own),
                    _ => None,
                }
            }
        };
        let beside = own.as_ref().and_then(Place::folder);
        let owner = match own.as_ref().map(|own| own.origin) {
            Some(Origin::Here) => beside.and_then(Path::parent),
            _ => Some(&*self.folder),
        };
        match (beside, owner) {
            (Some(beside), Some(owner)) => {
                (Some(beside.to_owned()), Residence::find(beside, hashing, owner, &self.folder))
            }
            _ if is_shared(&place.url) => (None, Residence::shared(&self.folder)),
            _ => (None, Residence::only(&self.folder)),
        }
    }

    /// Where this machine keeps what belongs to the files of folders whose checkpoints are in a store on a server.
    pub fn beside_shared(&self, url: &str) -> Result<PathBuf, Failure> {
        let name = blake3::hash(url.as_bytes()).to_hex();
        Ok(self.state()?.join("shared").join(&name[..16]))
    }

    fn named(&self) -> Option<Place> {
        let place = |url: &String, origin| Place { url: url.clone(), origin };
        let option = self.option.as_ref().map(|url| place(url, Origin::Option));
        let configured = || self.configured.as_ref().map(|url| place(url, Origin::Configuration));
        // An empty variable is how a shell takes it back.
        option
            .or_else(configured)
            .or_else(|| self.variable.as_ref().filter(|url| !url.is_empty()).map(|url| place(url, Origin::Variable)))
    }

    /// The store that the command line or the configuration names, as it is shown: without a password.
    pub fn said(&self) -> Option<String> {
        let place = self.named().filter(|place| place.origin != Origin::Variable)?;
        Some(place.shown().into_owned())
    }

    /// The variable that a program must not get that Piton starts: one with a password in it.
    pub fn withheld(&self) -> Option<&'static str> {
        let has_password = |url: &&String| {
            let shown = without_secrets(url);
            shown.split_once('@').map(|(user, _)| user) != url.split_once('@').map(|(user, _)| user)
        };
        self.variable.as_ref().filter(has_password).map(|_| "PITON_STORE")
    }

    /// The `.piton/` of the folder or of one above it. One that this user didn't make is refused, and not passed over: the
    /// user might take another store for it.
    fn here(&self) -> Result<Option<PathBuf>, Failure> {
        for ancestor in self.folder.ancestors() {
            let folder = ancestor.join(HERE);
            if private::check(&folder)? {
                return match Own::of(&self.state()?).made(&folder) {
                    true => Ok(Some(folder)),
                    false => Err(own::foreign(&folder)),
                };
            }
        }
        Ok(None)
    }

    /// Remembers that this user began a run with a configuration. Only the name of the record counts.
    pub(crate) fn remember_configured(&self, name: &str) -> Result<(), Failure> {
        let folder = self.state()?.join(CONFIGURED);
        private::create(&folder)?;
        let path = folder.join(name);
        private::write(&path, b"").map_err(|error| private::cant_write(&path, &error))
    }

    /// Whether this user began a run with a configuration.
    pub(crate) fn is_configured(&self, name: &str) -> Result<bool, Failure> {
        let folder = self.state()?.join(CONFIGURED);
        Ok(private::check(&folder)? && folder.join(name).symlink_metadata().is_ok_and(|data| data.is_file()))
    }

    /// Piton's part of the user's state directory.
    pub fn state(&self) -> Result<PathBuf, Failure> {
        // Relative paths are to be ignored, says the XDG specification.
        let absolute = |path: &Option<PathBuf>| path.clone().filter(|path| path.is_absolute());
        let state = absolute(&self.state_home).or_else(|| absolute(&self.home).map(|home| home.join(".local/state")));
        state.map(|state| state.join("piton")).ok_or_else(|| {
            Failure::fixable("neither XDG_STATE_HOME nor HOME says where your state directory is")
                .hint("set HOME, or name a store with `--store URL` or PITON_STORE.")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::FailureKind;

    struct World(tempfile::TempDir);

    impl World {
        fn new() -> Self {
            Self(tempfile::tempdir().unwrap())
        }

        fn at(&self, folder: &str) -> Surroundings {
            let folder = self.0.path().join(folder);
            std::fs::create_dir_all(&folder).unwrap();
            let home = Some(self.0.path().canonicalize().unwrap().join("home"));
            Surroundings { folder: folder.canonicalize().unwrap(), home, ..Surroundings::default() }
        }
    }

    fn url(surroundings: &Surroundings) -> Option<String> {
        match surroundings.find().unwrap() {
            Found::Place(place) => Some(place.url),
            Found::Nothing { .. } => None,
        }
    }

    #[test]
    fn the_option_beats_the_variable_and_both_beat_the_folder() {
        let world = World::new();
        let mut around = world.at("a");
        around.create_here("now").unwrap();
        assert!(url(&around).unwrap().ends_with("/a/.piton/store.db"));
        around.variable = Some(String::new());
        assert!(url(&around).unwrap().ends_with("/a/.piton/store.db"), "an empty variable is none");
        around.variable = Some("sqlite:/v".to_owned());
        assert_eq!(url(&around).unwrap(), "sqlite:/v");
        around.option = Some("sqlite:/o".to_owned());
        assert_eq!(url(&around).unwrap(), "sqlite:/o");
    }

    #[test]
    fn looking_makes_nothing() {
        let world = World::new();
        let around = world.at("a");
        assert_eq!(url(&around), None);
        assert!(!world.0.path().join("home").exists());
        assert_eq!(std::fs::read_dir(&around.folder).unwrap().count(), 0);
    }

    #[test]
    fn the_default_is_outside_the_folder() {
        let world = World::new();
        let mut around = world.at("a");
        let place = around.find_or_create("now").unwrap();
        assert_eq!(place.origin, Origin::State);
        assert!(place.url.contains("/home/.local/state/piton/"), "{}", place.url);
        assert_eq!(url(&around), Some(place.url.clone()));
        assert_eq!(around.find_or_create("later").unwrap(), place);
        assert_eq!(std::fs::read_dir(&around.folder).unwrap().count(), 0);

        around.state_home = Some("relative".into());
        assert_eq!(url(&around), Some(place.url), "a relative XDG_STATE_HOME is ignored");
        around.state_home = Some(world.0.path().join("xdg"));
        assert_eq!(url(&around), None);
    }

    #[test]
    fn a_store_above_is_used_only_if_it_is_inside_the_folder_there() {
        let world = World::new();
        let outer = world.at("a");
        outer.find_or_create("now").unwrap();
        let inner = world.at("a/b/c");
        let Found::Nothing { above, .. } = inner.find().unwrap() else { panic!("it has no store of its own") };
        assert_eq!(above, Some(outer.folder.clone()));
        outer.create_here("now").unwrap();
        assert!(url(&inner).unwrap().ends_with("/a/.piton/store.db"));
    }

    #[test]
    fn a_folder_belongs_to_the_nearest_store_above_but_not_to_that_of_the_home() {
        let world = World::new();
        let (outer, inner) = (world.at("home/a"), world.at("home/a/b/c"));
        let (home, other) = (world.at("home"), world.at("home/d"));
        assert_eq!(inner.clone().of_owner().folder, inner.folder, "there is none yet");
        home.find_or_create("now").unwrap();
        outer.find_or_create("now").unwrap();
        let owned = inner.clone().of_owner();
        assert_eq!((&owned.folder, owned.below.as_path()), (&outer.folder, Path::new("b/c")));
        assert_eq!(url(&owned), url(&outer));
        assert_eq!(other.clone().of_owner().folder, other.folder);
        inner.find_or_create("now").unwrap();
        assert_eq!(inner.clone().of_owner().folder, inner.folder, "its own is nearer");
        let named = Surroundings { option: Some("sqlite:/o".to_owned()), ..world.at("home/a/b") };
        assert_eq!(named.clone().of_owner().folder, named.folder);
    }

    #[test]
    fn what_is_not_a_folder_of_ours_is_refused() {
        let world = World::new();
        let around = world.at("a");
        std::os::unix::fs::symlink("/tmp", around.folder.join(HERE)).unwrap();
        assert_eq!(around.find().unwrap_err().kind(), FailureKind::Refused);
        let mut around = world.at("b");
        std::fs::write(world.0.path().join("piton"), "").unwrap();
        around.state_home = Some(world.0.path().to_owned());
        assert_eq!(around.find().unwrap_err().kind(), FailureKind::Refused);
        around = Surroundings { home: None, state_home: None, ..around };
        assert_eq!(around.find().unwrap_err().kind(), FailureKind::Fixable);
    }

    #[test]
    fn a_damaged_record_is_not_passed_over() {
        let world = World::new();
        let around = world.at("a");
        let place = around.find_or_create("now").unwrap();
        let record = place.url.strip_prefix("sqlite:").unwrap().replace(DATABASE, "folder.json");
        std::fs::write(record, "{").unwrap();
        assert_eq!(around.find().unwrap_err().kind(), FailureKind::Refused);
        assert_eq!(around.find_or_create("now").unwrap_err().kind(), FailureKind::Refused);
    }

    #[test]
    fn a_store_inside_the_folder_is_ignored_by_git_and_refused_beside_a_variable() {
        let world = World::new();
        let mut around = world.at("a");
        around.variable = Some("sqlite:/v".to_owned());
        assert_eq!(around.create_here("now").unwrap_err().kind(), FailureKind::Fixable);
        around.variable = None;
        around.create_here("now").unwrap();
        around.create_here("now").unwrap();
        assert_eq!(std::fs::read_to_string(around.folder.join(".piton/.gitignore")).unwrap(), "*\n");
    }
}
