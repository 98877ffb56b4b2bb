//! What `PATH-lock` holds: in which boot of the machine the store was last opened, and how far its WAL was
//! synced then.
//!
//! A power cut may take frames of the WAL that no commit waited for and leave later ones. By itself that can't
//! be told from damage. But it can't have happened if the machine has not been started again since, nor to
//! frames that were synced. So a store that a *kill* left is held to every frame, and one that a power cut
//! left to all that was synced, as far as the mark reached the disk; behind that, what can be read counts.
//!
//! The first mark of a boot is on disk before anything is written to the WAL. Later ones are written after a sync of the
//! WAL, ten times a second at most, and not synced themselves: on disk the mark may be old,
//! never ahead. A store without one, such as a copy of the other files, is held to every frame.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::sync::OnceLock;
use std::time::Duration;

/// How often it is noted how far the WAL was synced. The note isn't synced itself, so the disk has it seconds later
/// at best; to write it with every commit made each sync of the WAL a fifth longer.
pub(crate) const NOTED_EVERY: Duration = Duration::from_millis(100);

/// 16 bytes of the boot's id, 8 of the WAL's salts, 8 of a length.
const LENGTH: usize = 32;

/// What the file says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mark {
    boot: [u8; 16],
    /// Which WAL: SQLite chooses new salts each time it begins it again.
    pub(crate) salts: [u8; 8],
    /// So many bytes of it are on disk.
    pub(crate) synced: u64,
}

impl Mark {
    /// A mark of this boot.
    pub(crate) fn new(salts: [u8; 8], synced: u64) -> Self {
        Self { boot: boot().unwrap_or_default(), salts, synced }
    }

    /// The mark in the file, if there is one.
    pub(crate) fn read(file: &File) -> io::Result<Option<Self>> {
        let mut bytes = [0; LENGTH];
        match file.read_exact_at(&mut bytes, 0) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            Err(error) => return Err(error),
        }
        let (boot, rest) = bytes.split_at(16);
        Ok(Some(Self {
            boot: boot.try_into().expect("sixteen bytes"),
            salts: rest[..8].try_into().expect("eight bytes"),
            synced: u64::from_le_bytes(rest[8..].try_into().expect("eight bytes")),
        }))
    }

    pub(crate) fn write(&self, file: &File) -> io::Result<()> {
        let mut bytes = [0; LENGTH];
        bytes[..16].copy_from_slice(&self.boot);
        bytes[16..24].copy_from_slice(&self.salts);
        bytes[24..].copy_from_slice(&self.synced.to_le_bytes());
        file.write_all_at(&bytes, 0)
    }

    /// Whether the machine may have lost what it hadn't synced since the mark was made.
    pub(crate) fn is_of_another_boot(&self) -> bool {
        boot().is_some_and(|boot| boot != self.boot)
    }
}

/// The id of this boot; `None` where the system doesn't tell.
pub(crate) fn boot() -> Option<[u8; 16]> {
    static BOOT: OnceLock<Option<[u8; 16]>> = OnceLock::new();
    *BOOT.get_or_init(|| {
        if !cfg!(target_os = "linux") {
            return None;
        }
        let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
        u128::from_str_radix(&text.trim().replace('-', ""), 16).ok().map(u128::to_be_bytes)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_comes_back_and_knows_its_boot() {
        let file = tempfile::tempfile().unwrap();
        assert_eq!(Mark::read(&file).unwrap(), None);
        let mark = Mark::new([7; 8], 4152);
        mark.write(&file).unwrap();
        assert_eq!(Mark::read(&file).unwrap(), Some(mark));
        assert!(!mark.is_of_another_boot());
        assert_eq!(Mark { boot: [1; 16], ..mark }.is_of_another_boot(), boot().is_some());
    }
}
