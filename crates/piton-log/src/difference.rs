//! A node written as its difference from the node that it took the place of.
//!
//! An append to a long list makes new nodes from the leaf up to the root, each the old one with another
//! end. Written whole they would be more than what was appended. What stays is named by its length at the
//! front and at the back of the old node; what is new stands between, and an id in it of a node in the same
//! pack is the distance to that node.

use piton_types::{BlobId, Seq};

use crate::codec::{Reader, put_varint};
use crate::state::grammar::{Head, LIST, LIST_INNER, LONG_BYTES, MAP, Malformed};

/// Where a base is: in the pack of which entry, and at which place of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Base {
    pub(crate) seq: Seq,
    pub(crate) place: u32,
}

/// A node that may serve as base, and one that is to be written.
pub(crate) struct Pair<'a> {
    pub(crate) base: (Base, &'a [u8]),
    pub(crate) node: &'a [u8],
    /// Where the ids in the node are.
    pub(crate) references: &'a [usize],
}

/// Where the entries of a node begin; `None` if it has none.
fn entries(node: &[u8]) -> Option<usize> {
    let mut reader = Reader::new(node);
    let tag = reader.tag().ok()?;
    Head::read(tag, &mut reader).ok()??;
    Some(reader.position())
}

impl Pair<'_> {
    /// Appends the difference to `out`, if there is one worth it. `near` tells how far before this node in
    /// its pack another one is.
    pub(crate) fn write(&self, out: &mut Vec<u8>, near: impl Fn(&BlobId) -> Option<u64>) -> bool {
        let (base, node) = (self.base.1, self.node);
        let (Some(old_start), Some(start)) = (entries(base), entries(node)) else { return false };
        let (old, new) = (&base[old_start..], &node[start..]);
        let mut front = common_front(old, new);
        let mut back = common_back(&old[front..], &new[front..]);
        // An id that two nodes begin or end alike by chance stays whole.
        for at in self.references.iter().map(|at| at - start) {
            if (at..at + 32).contains(&front) {
                front = at;
            }
            if (at + 1..at + 33).contains(&(new.len() - back)) {
                back = new.len() - (at + 32);
            }
        }
        let middle = front..new.len() - back;
        // What a base costs beside the middle.
        if middle.len() + 16 > new.len() {
            return false;
        }
        put_varint(out, self.base.0.seq.0.into());
        put_varint(out, self.base.0.place.into());
        out.extend_from_slice(&node[..start]);
        put_varint(out, front as u64);
        put_varint(out, back as u64);
        let mut written = middle.start;
        for at in self.references.iter().map(|at| at - start).filter(|at| middle.contains(at)) {
            let id = BlobId::new(new[at..at + 32].try_into().expect("32 bytes"));
            if let Some(distance) = near(&id) {
                put_varint(out, (at - written) as u64);
                out.extend_from_slice(&new[written..at]);
                put_varint(out, distance);
                written = at + 32;
            }
        }
        put_varint(out, (middle.end - written) as u64);
        out.extend_from_slice(&new[written..middle.end]);
        true
    }
}

/// Bytes that are compared at once.
const STRIDE: usize = 32;

/// How many bytes two strings begin with alike.
fn common_front(a: &[u8], b: &[u8]) -> usize {
    let strides = a.as_chunks::<STRIDE>().0.iter().zip(b.as_chunks::<STRIDE>().0);
    let alike = strides.take_while(|(a, b)| a == b).count() * STRIDE;
    alike + a[alike..].iter().zip(&b[alike..]).take_while(|(a, b)| a == b).count()
}

/// How many bytes two strings end with alike.
fn common_back(a: &[u8], b: &[u8]) -> usize {
    let strides = a.as_rchunks::<STRIDE>().1.iter().rev().zip(b.as_rchunks::<STRIDE>().1.iter().rev());
    let alike = strides.take_while(|(a, b)| a == b).count() * STRIDE;
    let (a, b) = (&a[..a.len() - alike], &b[..b.len() - alike]);
    alike + a.iter().rev().zip(b.iter().rev()).take_while(|(a, b)| a == b).count()
}

/// The base of a difference.
pub(crate) fn base(difference: &[u8]) -> Result<Base, Malformed> {
    read_base(&mut Reader::new(difference))
}

fn read_base(reader: &mut Reader<'_>) -> Result<Base, Malformed> {
    let mut number = || u32::try_from(reader.varint()?).map_err(|_| Malformed("a number is out of range"));
    Ok(Base { seq: Seq(number()?), place: number()? })
}

/// The node, from its difference and its base. `length` is how long it will be, if that is known; `near` gives the id
/// of the node so far before this one.
pub(crate) fn apply(
    difference: &[u8],
    base: &[u8],
    length: Option<usize>,
    near: impl Fn(u64) -> Option<BlobId>,
) -> Result<Vec<u8>, Malformed> {
    let mut reader = Reader::new(difference);
    read_base(&mut reader)?;
    let start = reader.position();
    // Level and count are checked when the node is read; here they would be compared with the wrong rest.
    match reader.tag()? {
        LIST | MAP => {}
        LIST_INNER..=LONG_BYTES => drop(reader.byte()?),
        _ => return Err(Malformed("a difference has no entries")),
    }
    reader.varint()?;
    let head = &difference[start..reader.position()];
    let old = &base[entries(base).ok_or(Malformed("a base has no entries"))?..];
    let (front, back) = (reader.varint()?, reader.varint()?);
    let kept = front.checked_add(back).filter(|kept| *kept <= old.len() as u64);
    let (Some(_), Ok(front), Ok(back)) = (kept, usize::try_from(front), usize::try_from(back)) else {
        return Err(Malformed("a difference keeps more than its base has"));
    };
    let mut node = Vec::with_capacity(length.unwrap_or(head.len() + front + back + difference.len()));
    node.extend_from_slice(head);
    node.extend_from_slice(&old[..front]);
    loop {
        node.extend_from_slice(reader.sized()?);
        if reader.remaining() == 0 {
            break;
        }
        let id = near(reader.varint()?).ok_or(Malformed("a reference leads before the first node"))?;
        node.extend_from_slice(id.as_bytes());
    }
    node.extend_from_slice(&old[old.len() - back..]);
    Ok(node)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::grammar::{STRING, reference_offsets};

    fn inner(ids: &[u8]) -> Vec<u8> {
        let mut node = vec![LIST_INNER, 1, u8::try_from(ids.len()).unwrap()];
        for id in ids {
            node.extend([*id; 32]);
            node.push(7);
        }
        node
    }

    fn there_and_back(base: &[u8], node: &[u8], near: &[u8]) -> Option<Vec<u8>> {
        let at = Base { seq: Seq(300), place: 2 };
        let mut out = Vec::new();
        let distance = |id: &BlobId| near.iter().position(|n| *id.as_bytes() == [*n; 32]).map(|at| at as u64 + 1);
        let references = reference_offsets(node).unwrap();
        if !(Pair { base: (at, base), node, references: &references }.write(&mut out, distance)) {
            assert!(out.is_empty());
            return None;
        }
        assert_eq!(super::base(&out), Ok(at));
        let found = |distance: u64| near.get(usize::try_from(distance).unwrap() - 1).map(|n| BlobId::new([*n; 32]));
        assert_eq!(apply(&out, base, None, found).unwrap(), node);
        for cut in 0..out.len() {
            // What is left of a difference is refused or makes another node; it never panics.
            assert_ne!(apply(&out[..cut], base, None, found).ok().as_deref(), Some(node));
        }
        Some(out)
    }

    #[test]
    fn what_stays_is_not_written() {
        let base = inner(&[1, 2, 3, 4, 5, 6]);
        for changed in [&[1, 2, 3, 4, 5, 9][..], &[1, 2, 3, 4, 5, 6, 9], &[9, 2, 3, 4, 5, 6], &[1, 2, 9, 4, 5, 6]] {
            assert!(there_and_back(&base, &inner(changed), &[9]).unwrap().len() < 16, "{changed:?}");
            assert!(there_and_back(&base, &inner(changed), &[]).unwrap().len() < 48, "{changed:?}");
        }
        assert!(there_and_back(&base, &inner(&[1, 2, 3]), &[]).is_some());
    }

    #[test]
    fn what_has_little_in_common_is_written_whole() {
        let base = inner(&[1, 2, 3]);
        assert_eq!(there_and_back(&base, &inner(&[4, 5, 6]), &[]), None);
        assert_eq!(there_and_back(&base, &[STRING, 1, b'a'], &[]), None);
        assert_eq!(there_and_back(&[STRING, 1, b'a'], &base, &[]), None);
        assert_eq!(there_and_back(&[LIST, 0], &base, &[]), None);
    }

    #[test]
    fn hostile_differences_are_refused() {
        let base = inner(&[1, 2]);
        let difference = |rest: &[u8]| {
            let mut out = vec![0, 0];
            out.extend(rest);
            apply(&out, &base, None, |_| None)
        };
        assert!(difference(&[]).is_err());
        assert!(difference(&[LIST, 1, 200, 1, 0, 0]).is_err(), "more than the base has");
        let huge = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1];
        assert!(difference(&[&[LIST, 1], &huge[..], &huge, &[0]].concat()).is_err(), "lengths that overflow");
        assert!(difference(&[LIST, 1, 0, 0, 0, 1]).is_err(), "a reference to nowhere");
        assert!(difference(&[LIST, 1, 0, 0, 0]).is_ok());
    }
}
