//! Checks a WAL (`PATH-wal`) that a crash left behind, before SQLite recovers it.
//!
//! SQLite takes the first frame that doesn't fit for the end of the WAL, because that is how a power
//! cut leaves it. If the frame was damaged instead, every commit behind it is dropped without a word.
//! The two can be told apart: the checksums are cumulative, and each frame stores its own, so a frame
//! behind a bad one can be verified from what its predecessor stores. If a whole commit verifies
//! behind the one that the bad frame belongs to, the frame was not the end.
//!
//! What can't be told: damage in the *last* commit looks like a torn one, and so does damage that takes
//! more than a frame with it just before the last commit.
//!
//! The layout is SQLite's: a header of 32 bytes (magic, version, page size, checkpoint number, two
//! salts, checksum), then frames of 24 bytes (page number, database size if this ends a commit, the
//! salts, checksum) and a page. Frames with other salts are leftovers of before the WAL was restarted.

use std::collections::HashMap;
use std::io::{self, Read};

use crate::mark::Mark;
use crate::schema::PAGE;

const LOG_HEADER: usize = 32;
pub(crate) const FRAME_HEADER: usize = 24;
/// Bytes of a frame.
pub(crate) const FRAME: usize = FRAME_HEADER + PAGE;
/// Where the salts of the WAL are in the header of each frame.
pub(crate) const FRAME_SALTS: usize = 8;
/// Its lowest bit says in which byte order words are summed.
const MAGIC: u32 = 0x377f_0682;

/// What a WAL is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Finding {
    /// As a kill or a clean end leaves it.
    Whole,
    /// The last commit is torn, or was damaged. The first `keep` bytes are good.
    Torn { keep: u64 },
    /// Commits lie behind damage.
    Damaged(Damage),
}

/// Commits behind a frame that doesn't fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Damage {
    /// How many commits are before it.
    pub(crate) before: u64,
    /// How many are behind it.
    pub(crate) behind: u64,
    /// The first so many bytes are good.
    pub(crate) keep: u64,
    /// Which WAL it is; `None` if its header is damaged.
    pub(crate) salts: Option<[u8; 8]>,
    /// The frame was written for another WAL than the header is of.
    pub(crate) overwritten: bool,
}

impl Damage {
    /// Whether what doesn't fit had been on disk as it should be, so that no power cut explains it.
    pub(crate) fn was_synced(&self, mark: Mark) -> bool {
        match self.salts {
            None => true,
            Some(salts) => !self.overwritten && salts == mark.salts && self.keep < mark.synced,
        }
    }
}

/// The two sums of SQLite's WAL checksum.
type Sums = [u32; 2];

fn word(bytes: &[u8], big: bool) -> u32 {
    let bytes = bytes.try_into().expect("four bytes");
    if big { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) }
}

fn sum(mut sums: Sums, bytes: &[u8], big: bool) -> Sums {
    for pair in bytes.chunks_exact(8) {
        sums[0] = sums[0].wrapping_add(word(&pair[..4], big)).wrapping_add(sums[1]);
        sums[1] = sums[1].wrapping_add(word(&pair[4..], big)).wrapping_add(sums[0]);
    }
    sums
}

fn stored_sums(bytes: &[u8]) -> Sums {
    [word(&bytes[..4], true), word(&bytes[4..8], true)]
}

/// One frame.
struct Frame([u8; FRAME]);

impl Frame {
    /// The next frame, or `None` at the end or in a part of one.
    fn read(&mut self, log: &mut impl Read) -> io::Result<bool> {
        let mut filled = 0;
        while filled < FRAME {
            match log.read(&mut self.0[filled..]) {
                Ok(0) => return Ok(false),
                Ok(more) => filled += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    fn has_page(&self) -> bool {
        self.0[..4] != [0; 4]
    }

    fn ends_commit(&self) -> bool {
        self.0[4..8] != [0; 4]
    }

    fn salts(&self) -> [u8; 8] {
        self.0[8..16].try_into().expect("eight bytes")
    }

    fn stored(&self) -> Sums {
        stored_sums(&self.0[16..24])
    }

    /// What it should store, given its predecessor's sums.
    fn sums_after(&self, before: Sums, big: bool) -> Sums {
        sum(sum(before, &self.0[..8], big), &self.0[FRAME_HEADER..], big)
    }

    /// Whether the frame fits its checksum if it is taken to end a commit, that is, whether just the
    /// mark that it does was lost. The sums are linear in every word, so the one word that would make
    /// them right can be solved for.
    fn lost_its_mark(&self, before: Sums, big: bool) -> bool {
        let mut unit = Self([0; FRAME]);
        unit.0[4..8].copy_from_slice(&if big { 1_u32.to_be_bytes() } else { 1_u32.to_le_bytes() });
        let weight = unit.sums_after([0, 0], big);
        let (is, should) = (self.sums_after(before, big), self.stored());
        let off = [should[0].wrapping_sub(is[0]), should[1].wrapping_sub(is[1])];
        let odd = usize::from(weight[0].is_multiple_of(2));
        let lost = off[odd].wrapping_mul(inverse(weight[odd]));
        lost != 0 && off == [lost.wrapping_mul(weight[0]), lost.wrapping_mul(weight[1])]
    }
}

/// The inverse of an odd number modulo 2³², by Newton's method.
fn inverse(odd: u32) -> u32 {
    (0..5).fold(odd, |guess, _| guess.wrapping_mul(2_u32.wrapping_sub(odd.wrapping_mul(guess))))
}

/// Scans a WAL. `open` is called once or twice to read it from its start.
pub(crate) fn scan<R: Read>(mut open: impl FnMut() -> io::Result<R>) -> io::Result<Finding> {
    let mut log = open()?;
    let mut header = [0; LOG_HEADER];
    if let Err(error) = log.read_exact(&mut header) {
        return if error.kind() == io::ErrorKind::UnexpectedEof { Ok(Finding::Whole) } else { Err(error) };
    }
    let magic = word(&header[..4], true);
    let big = magic & 1 == 1;
    let sound = magic & !1 == MAGIC && sum([0, 0], &header[..24], big) == stored_sums(&header[24..]);
    if sound && word(&header[8..12], true) as usize == PAGE {
        return scan_frames(&mut log, &header, big);
    }
    // SQLite would ignore the whole WAL. That is right only if there is nothing in it.
    for big in [false, true] {
        let mut log = open()?;
        log.read_exact(&mut header)?;
        let behind = commits_without_header(&mut log, &header, big)?;
        if behind > 0 {
            let damage = Damage { before: 0, behind, keep: 0, salts: None, overwritten: false };
            return Ok(Finding::Damaged(damage));
        }
    }
    Ok(Finding::Whole)
}

/// What a WAL has to say, up to the first frame that doesn't fit.
#[derive(Debug, Default)]
pub(crate) struct Committed {
    /// Where the newest committed form of each page is.
    pub(crate) pages: HashMap<u32, u64>,
    /// Where the oldest committed form of the first page is.
    pub(crate) first_page: Option<u64>,
    /// How many pages the database has after the last commit.
    pub(crate) count: u32,
}

/// Reads what is committed in a WAL.
pub(crate) fn committed<R: Read>(open: impl FnOnce() -> io::Result<R>) -> io::Result<Committed> {
    let (mut log, mut header) = (open()?, [0; LOG_HEADER]);
    let (mut found, mut pending) = (Committed::default(), Vec::new());
    match log.read_exact(&mut header) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(found),
        read => read?,
    }
    let big = word(&header[..4], true) & 1 == 1;
    let mut sums = stored_sums(&header[24..]);
    let (mut frame, mut at) = (Frame([0; FRAME]), LOG_HEADER as u64);
    while frame.read(&mut log)? {
        sums = frame.sums_after(sums, big);
        if sums != frame.stored() || frame.salts() != header[16..24] {
            break;
        }
        pending.push((word(&frame.0[..4], true), at + FRAME_HEADER as u64));
        if frame.ends_commit() {
            let first = pending.iter().find(|(page, _)| *page == 1).map(|(_, at)| *at);
            found.first_page = found.first_page.or(first);
            found.pages.extend(pending.drain(..));
            found.count = word(&frame.0[4..8], true);
        }
        at += FRAME as u64;
    }
    Ok(found)
}

fn scan_frames(log: &mut impl Read, header: &[u8; LOG_HEADER], big: bool) -> io::Result<Finding> {
    let mut frame = Frame([0; FRAME]);
    // What the frame before stores, and what it should store: they differ if it is damaged, and either
    // of them may be the right one.
    let (mut stored, mut computed) = (stored_sums(&header[24..]), stored_sums(&header[24..]));
    let (mut before, mut behind) = (0, 0);
    let (mut end, mut keep) = (LOG_HEADER as u64, LOG_HEADER as u64);
    // Set at the first bad frame: whether the end of its commit has been seen.
    let mut ended = None;
    let (mut suspicious, mut overwritten) = (false, false);
    while frame.read(log)? {
        end += FRAME as u64;
        let after = frame.sums_after(stored, big);
        let follows = after == frame.stored();
        let salted = frame.salts() == header[16..24];
        let of_this_log = salted && frame.has_page();
        match &mut ended {
            None if of_this_log && follows => {
                if frame.ends_commit() {
                    before += 1;
                    keep = end;
                }
            }
            None => {
                // With other salts *and* another checksum it is a leftover, and its mark means nothing:
                // the frame that belongs here never reached the disk.
                let ours = salted || follows;
                let mark = ours && (frame.ends_commit() || (!follows && frame.lost_its_mark(stored, big)));
                ended = Some(mark);
                suspicious = mark;
                overwritten = !ours;
            }
            Some(ended) => {
                let verifies = of_this_log && (follows || frame.sums_after(computed, big) == frame.stored());
                if verifies && frame.ends_commit() {
                    suspicious = true;
                    behind += u64::from(*ended);
                    *ended = true;
                }
            }
        }
        (computed, stored) = (after, frame.stored());
    }
    Ok(match (behind, suspicious) {
        (0, false) => Finding::Whole,
        (0, true) => Finding::Torn { keep },
        _ => {
            let salts = Some(header[16..24].try_into().expect("eight bytes"));
            Finding::Damaged(Damage { before, behind, keep, salts, overwritten })
        }
    })
}

/// How many commits verify in a WAL whose header doesn't, from one frame to the next.
fn commits_without_header(log: &mut impl Read, header: &[u8; LOG_HEADER], big: bool) -> io::Result<u64> {
    let mut frame = Frame([0; FRAME]);
    let mut before = vec![stored_sums(&header[24..]), sum([0, 0], &header[..24], big)];
    let mut salts = None;
    let mut commits = 0;
    while frame.read(log)? {
        let verifies = before.iter().any(|sums| frame.sums_after(*sums, big) == frame.stored());
        let same_log = salts.is_none_or(|salts| salts == frame.salts());
        commits += u64::from(verifies && same_log && frame.has_page() && frame.ends_commit());
        salts = Some(frame.salts());
        before = vec![frame.stored()];
    }
    Ok(commits)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A WAL with commits of these many frames.
    fn log(commits: &[usize]) -> Vec<u8> {
        let mut log = Vec::new();
        log.extend(MAGIC.to_be_bytes());
        log.extend(3_007_000_u32.to_be_bytes());
        log.extend((PAGE as u32).to_be_bytes());
        log.extend(0_u32.to_be_bytes());
        log.extend(b"saltSALT");
        let mut sums = sum([0, 0], &log, false);
        log.extend(sums.iter().flat_map(|sum| sum.to_be_bytes()));
        for (commit, frames) in commits.iter().enumerate() {
            for number in 1..=*frames {
                let mut frame = Frame([0; FRAME]);
                frame.0[..4].copy_from_slice(&(number as u32).to_be_bytes());
                frame.0[4..8].copy_from_slice(&if number == *frames { 16_u32 } else { 0 }.to_be_bytes());
                frame.0[8..16].copy_from_slice(b"saltSALT");
                frame.0[FRAME_HEADER..].fill(commit as u8 + 1);
                sums = frame.sums_after(sums, false);
                frame.0[16..20].copy_from_slice(&sums[0].to_be_bytes());
                frame.0[20..24].copy_from_slice(&sums[1].to_be_bytes());
                log.extend(frame.0);
            }
        }
        log
    }

    fn find(log: &[u8]) -> Finding {
        scan(|| Ok(log)).unwrap()
    }

    const fn place(frame: usize) -> usize {
        LOG_HEADER + frame * FRAME
    }

    #[test]
    fn good_logs_are_whole() {
        assert_eq!(find(&[]), Finding::Whole);
        assert_eq!(find(&[0; 5000]), Finding::Whole);
        assert_eq!(find(&log(&[])), Finding::Whole);
        assert_eq!(find(&log(&[1, 3, 2])), Finding::Whole);
        let mut grown = log(&[1, 3, 2]);
        grown.resize(100_000, 0);
        assert_eq!(find(&grown), Finding::Whole, "zeros that were written ahead");
    }

    #[test]
    fn an_unfinished_commit_is_whole() {
        let log = log(&[1, 3]);
        for cut in (place(1)..log.len()).step_by(17) {
            assert_eq!(find(&log[..cut]), Finding::Whole, "{cut}");
        }
    }

    #[test]
    fn leftovers_of_before_a_restart_are_whole() {
        let mut restarted = log(&[1, 1]);
        let mut old = log(&[2, 2]);
        for frame in 0..4 {
            old[place(frame) + 8..place(frame) + 16].copy_from_slice(b"saltsold");
        }
        restarted.extend_from_slice(&old[place(2)..]);
        assert_eq!(find(&restarted), Finding::Whole);
    }

    #[test]
    fn a_frame_that_never_arrived_is_torn_even_among_leftovers() {
        let mut torn = log(&[1, 3]);
        torn[place(1)..place(2)].fill(0);
        assert_eq!(find(&torn), Finding::Torn { keep: place(1) as u64 });
        torn[place(1)..place(1) + 8].fill(9);
        assert_eq!(find(&torn), Finding::Torn { keep: place(1) as u64 }, "a leftover with the mark of a commit");
    }

    /// Every byte of the headers and some of the pages, flipped in several ways: damage before the last commit is always found.
    #[test]
    fn every_flip_before_the_last_commit_is_damage() {
        let good = log(&[2, 1, 1, 2]);
        let last = place(4);
        let headers = (0..LOG_HEADER).chain((0..6).flat_map(|frame| place(frame)..place(frame) + FRAME_HEADER));
        for at in headers.chain((LOG_HEADER..good.len()).step_by(89)) {
            for flip in [0x01, 0x10, 0xff] {
                let mut bad = good.clone();
                bad[at] ^= flip;
                let found = find(&bad);
                if at < last {
                    let commit = [2, 3, 4].iter().filter(|first| at >= place(**first)).count() as u64;
                    let Finding::Damaged(Damage { before, behind, .. }) = found else {
                        panic!("{at} ^ {flip}: {found:?}")
                    };
                    if at >= LOG_HEADER {
                        assert_eq!(before, commit, "{at}");
                        assert!((1..=4 - commit).contains(&behind), "{at}: {behind} behind {commit}");
                    } else if at >= 4 {
                        assert_eq!((before, behind), (0, 4), "{at}");
                    }
                } else {
                    assert_ne!(found, Finding::Whole, "{at} ^ {flip}");
                }
            }
        }
    }

    #[test]
    fn one_frame_is_enough_to_find_a_damaged_header() {
        for at in 0..LOG_HEADER {
            let mut bad = log(&[1]);
            bad[at] ^= 0x20;
            let damage = Damage { before: 0, behind: 1, keep: 0, salts: None, overwritten: false };
            assert_eq!(find(&bad), Finding::Damaged(damage), "{at}");
        }
    }

    #[test]
    fn inverses() {
        for odd in [1, 3, 0x9e37_79b9, u32::MAX] {
            assert_eq!(odd.wrapping_mul(inverse(odd)), 1);
        }
    }
}
