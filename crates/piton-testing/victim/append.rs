//! The journal's writer. A record is written in two halves, as a large write may reach the disk in
//! parts.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::journal::{Flaw, MAGIC, RECORD, read, record};

const HALF: usize = RECORD / 2;

/// Appends `count` records and acknowledges each on `out`. Continues what is there.
pub(crate) fn append(dir: &Path, flaw: Flaw, count: u64, out: &mut impl Write) -> io::Result<()> {
    let start = read(dir, flaw).map_err(io::Error::other)?.len() as u64;
    let file = open(dir, flaw)?;
    for number in start..start + count {
        let (bytes, offset) = (record(number), (MAGIC.len() + RECORD * usize::try_from(number).expect("few")) as u64);
        if flaw == Flaw::EarlyAck {
            writeln!(out, "ack {number}")?;
            out.flush()?;
        }
        file.set_len(offset + RECORD as u64)?;
        file.write_all_at(&bytes[..HALF], offset)?;
        file.write_all_at(&bytes[HALF..], offset + HALF as u64)?;
        match file.sync_data_unless(flaw == Flaw::NoFsync) {
            Err(error) if flaw != Flaw::IgnoredError => return Err(error),
            _ => {}
        }
        if flaw != Flaw::EarlyAck {
            writeln!(out, "ack {number}")?;
            out.flush()?;
        }
    }
    Ok(())
}

/// Opens the journal; makes it whole beside its place first if it isn't there.
fn open(dir: &Path, flaw: Flaw) -> io::Result<File> {
    let (path, beside) = (dir.join("journal"), dir.join("journal.new"));
    if !path.exists() {
        let mut file = File::create(&beside)?;
        file.write_all(MAGIC)?;
        file.sync_all_unless(flaw == Flaw::NoFsync)?;
        fs::rename(&beside, &path)?;
        File::open(dir)?.sync_all_unless(flaw == Flaw::NoDirsync)?;
    }
    OpenOptions::new().read(true).write(true).open(path)
}

trait SyncUnless {
    fn sync_data_unless(&self, not: bool) -> io::Result<()>;
    fn sync_all_unless(&self, not: bool) -> io::Result<()>;
}

impl SyncUnless for File {
    fn sync_data_unless(&self, not: bool) -> io::Result<()> {
        if not { Ok(()) } else { self.sync_data() }
    }

    fn sync_all_unless(&self, not: bool) -> io::Result<()> {
        if not { Ok(()) } else { self.sync_all() }
    }
}
