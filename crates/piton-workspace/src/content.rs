//! The bytes of files: small ones are one blob; large ones are cut at places that their content decides,
//! and runs of zeros are only counted, so that a sparse file costs what is in it.
//!
//! Equal contents have equal ids, whatever holes the file system keeps.

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt as _;

use bytes::Bytes;
use fastcdc::v2020::{FastCDC, Normalization};
use piton_store::{Hashing, Redaction};
use piton_types::BlobId;
use rustix::fs::SeekFrom;

use crate::tree::Content;
use crate::wire::{Wire, put_varint};
use crate::{TreeError, WorkspaceError};

/// Files up to this size are one blob.
pub(crate) const WHOLE: u64 = 1 << 20;
/// Zeros are counted in blocks of this size, at multiples of it.
const BLOCK: usize = 1 << 20;

const PIECE_MIN: usize = 128 << 10;
const PIECE_AVERAGE: usize = 512 << 10;
const PIECE_MAX: usize = 2 << 20;

const PIECE: u8 = 0;
const ZEROS: u8 = 1;

/// Where contents and nodes go.
pub(crate) trait Sink: Sync {
    fn hashing(&self) -> &Hashing;
    fn content(&self, bytes: &[u8]) -> Result<BlobId, WorkspaceError>;
    fn node(&self, bytes: &[u8]) -> Result<BlobId, WorkspaceError>;

    /// What counts as a secret in a file, if anything does.
    fn redaction(&self) -> Option<&Redaction> {
        None
    }
}

/// Why a file could not be read.
pub(crate) enum Unread {
    System,
    Sink(WorkspaceError),
}

impl From<rustix::io::Errno> for Unread {
    fn from(_: rustix::io::Errno) -> Self {
        Self::System
    }
}

impl From<WorkspaceError> for Unread {
    fn from(error: WorkspaceError) -> Self {
        Self::Sink(error)
    }
}

/// Reads a file to its end, which may not be where `expected` says. `buffer` is only there to be used
/// again.
pub(crate) fn read(
    file: &OwnedFd,
    expected: u64,
    buffer: &mut Vec<u8>,
    sink: &dyn Sink,
) -> Result<(Content, u64), Unread> {
    buffer.clear();
    if expected <= WHOLE {
        let capacity = usize::try_from(expected).expect("at most 1 MiB") + 1;
        if fill(file, buffer, capacity)? && buffer.len() as u64 <= WHOLE {
            return Ok((Content::Whole(sink.content(buffer)?), buffer.len() as u64));
        }
    }
    read_large(file, buffer, sink)
}

/// Reads until `buffer` has `target` bytes; true if the file ended before.
fn fill(file: &OwnedFd, buffer: &mut Vec<u8>, target: usize) -> Result<bool, Unread> {
    while buffer.len() < target {
        buffer.reserve(target - buffer.len());
        match rustix::io::read(file, rustix::buffer::spare_capacity(buffer)) {
            Ok(0) => return Ok(true),
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(false)
}

/// Whether all of the file's next block is known to be zeros without reading it; the file is left at
/// `position`.
fn is_hole(file: &OwnedFd, position: u64) -> bool {
    let next = rustix::fs::seek(file, SeekFrom::Data(position));
    let hole = match next {
        Ok(data) => data >= position + BLOCK as u64,
        // Nothing but a hole is left, as long as a whole block of it is.
        Err(rustix::io::Errno::NXIO) => {
            rustix::fs::seek(file, SeekFrom::End(0)).is_ok_and(|end| end >= position + BLOCK as u64)
        }
        Err(_) => false,
    };
    rustix::fs::seek(file, SeekFrom::Start(position)).is_ok() && hole
}

fn read_large(file: &OwnedFd, buffer: &mut Vec<u8>, sink: &dyn Sink) -> Result<(Content, u64), Unread> {
    let mut pieces = Pieces { list: Vec::new(), count: 0, zeros: 0, sink };
    // What was read and isn't cut yet begins at the start of `span`, which never has a whole block of zeros
    // that begins at a multiple of a block.
    let mut span = std::mem::take(buffer);
    let mut block = Vec::new();
    let mut size = 0_u64;
    if !span.is_empty() {
        // It has grown past what was expected: from the start.
        span.clear();
        rustix::fs::seek(file, SeekFrom::Start(0))?;
    }
    loop {
        if is_hole(file, size) {
            pieces.cut(&mut span, true)?;
            pieces.zeros += BLOCK as u64;
            size += BLOCK as u64;
            rustix::fs::seek(file, SeekFrom::Start(size))?;
            continue;
        }
        block.clear();
        block.reserve_exact(BLOCK);
        let ended = fill_exactly(file, &mut block, BLOCK)?;
        size += block.len() as u64;
        pieces.block(&mut span, &block)?;
        if ended {
            break;
        }
    }
    let list = pieces.finish(&mut span)?;
    *buffer = span;
    if size <= WHOLE {
        // It shrank while it was read: then it is one blob like any other of its size.
        rustix::fs::seek(file, SeekFrom::Start(0))?;
        buffer.clear();
        fill(file, buffer, BLOCK + 1)?;
        return Ok((Content::Whole(sink.content(buffer)?), buffer.len() as u64));
    }
    Ok((Content::Pieces(sink.content(&list)?), size))
}

/// Like [`fill`], but never more than `target`.
fn fill_exactly(file: impl AsFd, buffer: &mut Vec<u8>, target: usize) -> Result<bool, Unread> {
    buffer.resize(target, 0);
    let mut filled = 0;
    while filled < target {
        match rustix::io::read(&file, &mut buffer[filled..]) {
            Ok(0) => {
                buffer.truncate(filled);
                return Ok(true);
            }
            Ok(n) => filled += n,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(false)
}

struct Pieces<'a> {
    list: Vec<u8>,
    count: u64,
    zeros: u64,
    sink: &'a dyn Sink,
}

impl Pieces<'_> {
    /// Takes the next block of the file.
    fn block(&mut self, span: &mut Vec<u8>, block: &[u8]) -> Result<(), WorkspaceError> {
        if block.len() == BLOCK && block.iter().all(|byte| *byte == 0) {
            self.cut(span, true)?;
            self.zeros += BLOCK as u64;
        } else if !block.is_empty() {
            self.flush_zeros();
            span.extend_from_slice(block);
            self.cut(span, false)?;
        }
        Ok(())
    }

    /// The whole list.
    fn finish(mut self, span: &mut Vec<u8>) -> Result<Vec<u8>, WorkspaceError> {
        self.cut(span, true)?;
        self.flush_zeros();
        let mut list = Vec::with_capacity(self.list.len() + 4);
        put_varint(&mut list, self.count);
        list.extend_from_slice(&self.list);
        Ok(list)
    }

    /// Cuts pieces from the front of `span` for as long as what follows can't change where they end.
    fn cut(&mut self, span: &mut Vec<u8>, last: bool) -> Result<(), WorkspaceError> {
        let mut start = 0;
        while span.len() - start > if last { 0 } else { PIECE_MAX } {
            let seed = self.sink.hashing().seed();
            let rest = &span[start..];
            let cutter =
                FastCDC::with_level_and_seed(rest, PIECE_MIN, PIECE_AVERAGE, PIECE_MAX, Normalization::Level1, seed);
            let (_, end) = cutter.cut(0, rest.len());
            let id = self.sink.content(&rest[..end])?;
            self.list.push(PIECE);
            put_varint(&mut self.list, end as u64);
            self.list.extend_from_slice(id.as_bytes());
            self.count += 1;
            start += end;
        }
        span.drain(..start);
        Ok(())
    }

    fn flush_zeros(&mut self) {
        if self.zeros > 0 {
            self.list.push(ZEROS);
            put_varint(&mut self.list, self.zeros);
            self.count += 1;
            self.zeros = 0;
        }
    }
}

/// Puts the content of a large file, given piece by piece, into another sink, which may cut it elsewhere. The new
/// list of pieces is what a scan of the file would have made there.
pub(crate) fn cut_anew(
    get: &dyn Fn(BlobId) -> Result<Bytes, WorkspaceError>,
    list: BlobId,
    size: u64,
    sink: &dyn Sink,
) -> Result<BlobId, WorkspaceError> {
    let mut anew = Pieces { list: Vec::new(), count: 0, zeros: 0, sink };
    let (mut span, mut block, mut position) = (Vec::new(), Vec::with_capacity(BLOCK), 0_u64);
    let mut add = |mut rest: &[u8]| -> Result<(), WorkspaceError> {
        while !rest.is_empty() {
            let (now, later) = rest.split_at(rest.len().min(BLOCK - block.len()));
            block.extend_from_slice(now);
            rest = later;
            if block.len() == BLOCK {
                anew.block(&mut span, &block)?;
                block.clear();
            }
        }
        Ok(())
    };
    let zeros = vec![0; BLOCK];
    let mut add_at = |at: u64, bytes: &[u8]| -> Result<(), WorkspaceError> {
        while position < at {
            let now = (at - position).min(BLOCK as u64);
            add(&zeros[..usize::try_from(now).expect("at most a block")])?;
            position += now;
        }
        position += bytes.len() as u64;
        add(bytes)
    };
    each_piece(get, Content::Pieces(list), size, |at, bytes| add_at(at, &bytes))?;
    add_at(size, &[])?;
    anew.block(&mut span, &block)?;
    sink.content(&anew.finish(&mut span)?)
}

/// A piece of a large file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Piece {
    Blob { id: BlobId, length: u64 },
    Zeros { length: u64 },
}

/// The pieces of a large file of this size.
pub(crate) fn pieces(list: &[u8], size: u64) -> Result<Vec<Piece>, TreeError> {
    let mut wire = Wire(list);
    let mut pieces = Vec::new();
    let mut whole = 0_u64;
    for _ in 0..wire.count_of(2)? {
        let kind = wire.byte()?;
        let length = wire.varint()?;
        whole = whole.checked_add(length).ok_or(TreeError("a file is larger than can be"))?;
        pieces.push(match kind {
            PIECE => Piece::Blob { id: BlobId::new(wire.array()?), length },
            ZEROS => Piece::Zeros { length },
            _ => return Err(TreeError("a piece is of an unknown kind")),
        });
    }
    wire.end()?;
    if whole != size {
        return Err(TreeError("the pieces of a file don't add up to its size"));
    }
    Ok(pieces)
}

/// Whether a file is a part of a content that was being written when the power went: no longer than it, and each
/// byte either its own or zero, as places are that never reached the disk.
pub(crate) fn is_part_of(
    file: &OwnedFd,
    get: &dyn Fn(BlobId) -> Result<Bytes, WorkspaceError>,
    content: Content,
    size: u64,
) -> Result<bool, WorkspaceError> {
    let list = match content {
        Content::Whole(id) => vec![Piece::Blob { id, length: size }],
        Content::Pieces(id) => pieces(&get(id)?, size)?,
    };
    let mut block = Vec::new();
    for piece in list {
        let (mut left, bytes) = match piece {
            Piece::Blob { id, length } => (length, Some(get(id)?)),
            Piece::Zeros { length } => (length, None),
        };
        let mut rest = bytes.as_deref().unwrap_or_default();
        while left > 0 {
            let count = usize::try_from(left.min(BLOCK as u64)).expect("at most a block");
            let Ok(ended) = fill_exactly(file, &mut block, count) else { return Ok(false) };
            let fits = match &bytes {
                Some(_) => block.iter().zip(rest).all(|(now, then)| now == then || *now == 0),
                None => block.iter().all(|now| *now == 0),
            };
            if !fits || ended {
                return Ok(fits);
            }
            rest = rest.get(count..).unwrap_or_default();
            left -= count as u64;
        }
    }
    Ok(fill_exactly(file, &mut block, 1).is_ok_and(|ended| ended))
}

/// Gives the bytes of a content, each piece with its place. What no piece has is zeros.
pub(crate) fn each_piece(
    get: &dyn Fn(BlobId) -> Result<Bytes, WorkspaceError>,
    content: Content,
    size: u64,
    mut take: impl FnMut(u64, Bytes) -> Result<(), WorkspaceError>,
) -> Result<(), WorkspaceError> {
    let list = match content {
        Content::Whole(id) => vec![Piece::Blob { id, length: size }],
        Content::Pieces(id) => pieces(&get(id)?, size)?,
    };
    let mut at = 0;
    for piece in list {
        at += match piece {
            Piece::Zeros { length } => length,
            Piece::Blob { id, length } => {
                let bytes = get(id)?;
                if bytes.len() as u64 != length {
                    return Err(TreeError("a piece of a file doesn't have its length").into());
                }
                take(at, bytes)?;
                length
            }
        };
    }
    Ok(())
}

/// Writes a content into an empty file.
pub(crate) fn write(
    file: &File,
    get: &dyn Fn(BlobId) -> Result<Bytes, WorkspaceError>,
    content: Content,
    size: u64,
    fail: impl Fn(std::io::Error) -> WorkspaceError,
) -> Result<(), WorkspaceError> {
    each_piece(get, content, size, |at, bytes| file.write_all_at(&bytes, at).map_err(&fail))?;
    file.set_len(size).map_err(&fail)
}

/// All bytes of a content, for a file that fits in memory.
pub(crate) fn load(
    get: &dyn Fn(BlobId) -> Result<Bytes, WorkspaceError>,
    content: Content,
    size: u64,
) -> Result<Bytes, WorkspaceError> {
    load_start(get, content, size, u64::MAX)
}

/// The same up to the piece in which it has `most` bytes: a hole in a file takes no room, but its zeros would.
pub(crate) fn load_start(
    get: &dyn Fn(BlobId) -> Result<Bytes, WorkspaceError>,
    content: Content,
    size: u64,
    most: u64,
) -> Result<Bytes, WorkspaceError> {
    match content {
        Content::Whole(id) => {
            let bytes = get(id)?;
            if bytes.len() as u64 != size {
                return Err(TreeError("a file's content doesn't have its size").into());
            }
            Ok(bytes)
        }
        Content::Pieces(id) => {
            let mut whole = Vec::new();
            for piece in pieces(&get(id)?, size)? {
                match piece {
                    Piece::Blob { id, length } => {
                        let bytes = get(id)?;
                        if bytes.len() as u64 != length {
                            return Err(TreeError("a piece doesn't have its length").into());
                        }
                        whole.extend_from_slice(&bytes);
                    }
                    Piece::Zeros { length } => {
                        let length = length.min(most.saturating_sub(whole.len() as u64));
                        let length = usize::try_from(length).map_err(|_| TreeError("a file is too large"))?;
                        whole.resize(whole.len() + length, 0);
                    }
                }
                if whole.len() as u64 >= most {
                    break;
                }
            }
            Ok(whole.into())
        }
    }
}
