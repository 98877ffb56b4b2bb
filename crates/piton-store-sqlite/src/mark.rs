//! What `PATH-lock` holds: in which boot of the machine the store was last opened, and how far its log was
//! synced then.
//!
//! A power cut may take frames of the log that nobody waited for and leave later ones. By itself that can't
//! be told from damage. But it can't have happened if the machine has not been started again since, nor to
//! frames that were synced. So a store that a *kill* left is held to every frame, and one that a power cut
//! left to all that was synced, as far as the mark reached the disk; behind that, what can be read counts.
//!
//! The first mark of a boot is on disk before anything is written to the log. Later ones are written after a sync of the
//! log, with a commit or without, ten times a second at most, and not synced themselves: on disk the mark may be old,
//! never ahead. A store without one, such as a copy of the other files, is held to every frame.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::sync::OnceLock;
use std::time::Duration;

use crate::wal_scan::{FRAME, FRAME_SALTS, LOG_HEADER, LOG_SALTS};

/// How often it is noted how far the log was synced. The note isn't synced itself, so the disk has it seconds later
/// at best; to write it with every commit made each sync of the log a fifth longer.
pub(crate) const NOTED_EVERY: Duration = Duration::from_millis(100);

/// 16 bytes of the boot's id, 8 of the log's salts, 8 of a length.
const LENGTH: usize = 32;

/// What the file says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mark {
    boot: [u8; 16],
    /// Which log: SQLite chooses new salts each time it begins it again.
    pub(crate) salts: [u8; 8],
    /// So many bytes of it are on disk.
    pub(crate) synced: u64,
}

impl Mark {
    /// A mark of this boot.
    pub(crate) fn new(salts: [u8; 8], synced: u64) -> Self {
        Self { boot: boot().unwrap_or_default(), salts, synced }
    }

    /// The mark that a log of so many frames will deserve when it is synced; `None` if it has been begun again meanwhile.
    ///
    /// Frames are written in order. So if that one is of this log, all before it are there by now, and a sync that begins
    /// after this makes them durable.
    pub(crate) fn of_log(log: &File, frames: u64) -> Option<Self> {
        let end = LOG_HEADER as u64 + frames * FRAME as u64;
        let (mut salts, mut of_frame) = ([0; 8], [0; 8]);
        let newest = end.checked_sub(FRAME as u64).filter(|_| frames > 0)?;
        log.read_exact_at(&mut salts, LOG_SALTS as u64).ok()?;
        log.read_exact_at(&mut of_frame, newest + FRAME_SALTS as u64).ok()?;
        (salts == of_frame).then(|| Self::new(salts, end))
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
    fn a_log_is_marked_as_far_as_its_own_frames_go() {
        let log = tempfile::tempfile().unwrap();
        assert_eq!(Mark::of_log(&log, 1), None, "it is empty");
        let frame = |salts: [u8; 8]| [&[0; FRAME_SALTS][..], &salts, &vec![0; FRAME - FRAME_SALTS - 8]].concat();
        let header = [&[0; LOG_SALTS][..], &[7; 8], &[0; LOG_HEADER - LOG_SALTS - 8]].concat();
        log.write_all_at(&[header, frame([7; 8]), frame([7; 8]), frame([6; 8])].concat(), 0).unwrap();
        assert_eq!(Mark::of_log(&log, 0), None);
        assert_eq!(Mark::of_log(&log, 2), Some(Mark::new([7; 8], 32 + 2 * 4120)));
        assert_eq!(Mark::of_log(&log, 3), None, "that one is left from before the log was begun again");
        assert_eq!(Mark::of_log(&log, 4), None, "there is none");
    }

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
