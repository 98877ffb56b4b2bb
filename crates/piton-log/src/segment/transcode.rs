//! Copies a node while its references are written differently.

use crate::codec::{Reader, put_bytes, put_varint};
use crate::state::grammar::{
    BYTES, CHUNK, FALSE, FLOAT, Head, Kind, MAX_DEPTH, Malformed, NATURAL, NEGATIVE, NULL, REFERENCE, STRING, TRUE,
};

/// Takes a reference from the reader and writes its new form.
type Rewrite<'a> = &'a mut dyn FnMut(&mut Reader<'_>, &mut Vec<u8>) -> Result<(), Malformed>;

/// Copies `node` to `out`; `reference` takes each reference from the reader and writes its new form.
pub(super) fn transcode(node: &[u8], out: &mut Vec<u8>, reference: Rewrite<'_>) -> Result<(), Malformed> {
    let mut reader = Reader::new(node);
    value(&mut reader, out, reference, 0)?;
    reader.end()
}

/// Calls itself for a container inside a container; `depth` bounds that on hostile bytes.
fn value(reader: &mut Reader<'_>, out: &mut Vec<u8>, reference: Rewrite<'_>, depth: usize) -> Result<(), Malformed> {
    if depth > MAX_DEPTH {
        return Err(Malformed("it nests too deeply"));
    }
    let tag = reader.tag()?;
    match tag {
        NULL | FALSE | TRUE => out.push(tag),
        NATURAL | NEGATIVE => {
            out.push(tag);
            put_varint(out, reader.varint()?);
        }
        FLOAT => {
            out.push(tag);
            out.extend_from_slice(reader.bytes(8)?);
        }
        STRING | BYTES | CHUNK => {
            out.push(tag);
            put_bytes(out, reader.sized()?);
        }
        REFERENCE => {
            out.push(tag);
            reference(reader, out)?;
        }
        tag => {
            let Some(head) = Head::read(tag, reader)? else { return Err(Malformed("a tag is unknown")) };
            head.write(out);
            for _ in 0..head.count {
                if head.kind == Kind::Map {
                    put_bytes(out, reader.sized()?);
                }
                if head.level == 0 && matches!(head.kind, Kind::List | Kind::Map) {
                    value(reader, out, reference, depth + 1)?;
                } else {
                    reference(reader, out)?;
                    put_varint(out, reader.varint()?);
                }
            }
        }
    }
    Ok(())
}
