//! The stores of this user as things of their own: which there are, and how one goes or becomes another folder's.

use std::path::{Path, PathBuf};

use piton_store::Hashing;

use super::records::Records;
use super::{Origin, Place, Surroundings, private, residence};
use crate::failure::Failure;
use crate::words::typed;

/// A store of a folder.
#[derive(Debug, Clone)]
pub struct Kept {
    /// The name by which it is told from others.
    pub name: String,
    /// Where it is.
    pub place: Place,
    /// Where its database and all that belongs to it lie.
    pub path: PathBuf,
}

impl Kept {
    fn of(place: Place) -> Option<Self> {
        let path = place.folder()?.to_owned();
        let name = match place.origin {
            // `.piton` says nothing: the folder does.
            Origin::Here => path.parent()?.to_string_lossy().into_owned(),
            _ => path.file_name()?.to_str()?.to_owned(),
        };
        Some(Self { name, place, path })
    }

    /// The folder that it was last seen to be the store of, as far as it tells.
    pub fn folder(&self, hashing: &Hashing) -> Option<PathBuf> {
        match self.place.origin {
            Origin::Here => self.path.parent().map(Path::to_owned),
            _ => residence::last(&self.path, hashing),
        }
    }

    /// How many bytes it takes, with what lies beside its database.
    pub fn bytes(&self) -> u64 {
        size(&self.path)
    }

    /// Deletes it. It is out of the way at once; what is killed on the way leaves nothing that is taken for a store.
    pub fn remove(&self) -> Result<(), Failure> {
        let fail =
            |error: std::io::Error| Failure::fixable(format!("can't remove {}", self.path.display())).because(&error);
        let above = self.path.parent().ok_or_else(|| Failure::internal("a store lies in a folder"))?;
        let gone = above.join(format!(".gone.{}", std::process::id()));
        std::fs::rename(&self.path, &gone).map_err(fail)?;
        std::fs::remove_dir_all(&gone).map_err(fail)?;
        private::sync(above).map_err(fail)
    }
}

/// The bytes of the files in a folder; no link is followed.
fn size(folder: &Path) -> u64 {
    let entries = folder.read_dir().into_iter().flatten().flatten();
    let sizes = entries.map(|entry| match entry.metadata() {
        Ok(data) if data.is_dir() => size(&entry.path()),
        Ok(data) => data.len(),
        Err(_) => 0,
    });
    sizes.sum()
}

impl Surroundings {
    /// The stores of this user's folders, as far as the state directory knows them, and this folder's.
    pub fn stores(&self) -> Result<Vec<Kept>, Failure> {
        let unnamed = Self { option: None, configured: None, variable: None, ..self.clone() };
        Ok(unnamed.find_all()?.into_iter().filter_map(Kept::of).collect())
    }

    /// Makes a store of the state directory that of another folder, whose files and history are taken to be the same.
    pub fn give(&self, kept: &Kept, folder: &Path, hashing: &Hashing) -> Result<(), Failure> {
        if kept.place.origin != Origin::State {
            return Err(Failure::fixable(format!(
                "{} lies inside its folder, and goes where that goes",
                kept.place.url
            ))
            .hint("nothing was changed."));
        }
        let mut records = Records::read(&self.state()?)?;
        if let Some(other) = records.find(folder) {
            return Err(Failure::fixable(format!("{} has a store already", folder.display()))
                .cause(format!("it is {}", other.display()))
                .hint(format!(
                    "nothing was changed. `piton store ls` shows all; `{}` removes this one.",
                    typed(&["piton", "store", "rm", &folder.to_string_lossy()])
                )));
        }
        // In this order: a folder that finds the store finds its past, too.
        residence::append(&kept.path, hashing, folder)?;
        records.give(&kept.path, folder)
    }
}
