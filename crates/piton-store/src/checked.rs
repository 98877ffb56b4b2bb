//! JSON that says of itself whether it is whole: the first field is the checksum of all that follows it,
//! byte for byte. So it can be read with any tool, and a changed byte is found all the same.

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::StoreError;

const BEFORE: &str = "{\"checksum\":\"";
const AFTER: &str = "\",";
/// Where what the checksum covers begins.
const START: usize = BEFORE.len() + 64 + AFTER.len();

/// The newest version of every kind of file.
pub const FORMAT: u32 = 1;

/// What leads from one version of the files to the next. Files are never rewritten for it: each says which version it
/// has, and is brought up to date whenever it is read. There is one version so far, and so no step.
const STEPS: &[Step] = &[];

/// What leads from a version to the next one.
struct Step {
    from: u32,
    /// Gets the record as an object, its checksum aside.
    change: fn(&mut serde_json::Value),
}

/// One line of JSON, which must be an object with fields.
pub fn seal(record: &impl Serialize) -> Result<Vec<u8>, StoreError> {
    let failed = |error: serde_json::Error| StoreError::Invalid { what: "a record".into(), detail: error.to_string() };
    let mut line = vec![0; START - 1];
    serde_json::to_writer(&mut line, record).map_err(failed)?;
    line.push(b'\n');
    let checksum = blake3::hash(&line[START..]).to_hex();
    // The brace that the record began with becomes the comma behind the checksum.
    line[..START].copy_from_slice(format!("{BEFORE}{checksum}{AFTER}").as_bytes());
    Ok(line)
}

#[derive(serde::Deserialize)]
struct Versioned {
    format: u32,
}

/// What [`seal`] wrote, from bytes that are exactly that.
pub fn open<T: DeserializeOwned>(bytes: &[u8], what: impl Fn() -> String) -> Result<T, StoreError> {
    open_as(bytes, what, FORMAT, STEPS)
}

/// The same, if `newest` were the newest version.
fn open_as<T: DeserializeOwned>(
    bytes: &[u8],
    what: impl Fn() -> String,
    newest: u32,
    steps: &[Step],
) -> Result<T, StoreError> {
    let corrupt = |detail: &str| StoreError::corrupt(what(), detail);
    let Some(line) = bytes.strip_suffix(b"\n").filter(|line| line.len() > START) else {
        return Err(corrupt("it is cut off"));
    };
    let checksum = blake3::hash(&bytes[START..]).to_hex();
    if !bytes.starts_with(format!("{BEFORE}{checksum}{AFTER}").as_bytes()) {
        return Err(corrupt("its checksum doesn't fit its content"));
    }
    let broken = |error: serde_json::Error| corrupt(&error.to_string());
    let Versioned { format } = serde_json::from_slice(line).map_err(broken)?;
    if format > newest {
        return Err(StoreError::TooNew { what: what(), found: format.into(), known: newest.into() });
    }
    if format == newest {
        return serde_json::from_slice(line).map_err(broken);
    }
    let mut record: serde_json::Value = serde_json::from_slice(line).map_err(broken)?;
    for version in format..newest {
        let step = steps.iter().find(|step| step.from == version);
        (step.ok_or_else(|| corrupt("its version is not one that was ever written"))?.change)(&mut record);
    }
    serde_json::from_value(record).map_err(broken)
}

/// Bytes as text, for `#[serde(with = …)]`.
pub mod base64 {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use bytes::Bytes;
    use serde::{Deserialize as _, Deserializer, Serializer};

    #[expect(missing_docs, reason = "serde calls it")]
    pub fn serialize<S: Serializer>(bytes: &Bytes, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&STANDARD.encode(bytes))
    }

    #[expect(missing_docs, reason = "serde calls it")]
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Bytes, D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
        STANDARD.decode(text.as_bytes()).map(Bytes::from).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Sample {
        format: u32,
        text: String,
    }

    #[test]
    fn any_changed_byte_is_found() {
        let sample = Sample { format: FORMAT, text: "a \"text\"\n".into() };
        let line = seal(&sample).unwrap();
        let json: serde_json::Value = serde_json::from_slice(&line).unwrap();
        assert_eq!(json["text"], "a \"text\"\n");
        let read = |bytes: &[u8]| open::<Sample>(bytes, || "it".into());
        assert_eq!(read(&line).unwrap(), sample);
        for at in 0..line.len() {
            let mut damaged = line.clone();
            damaged[at] ^= 1 << (at % 8);
            assert!(read(&damaged).is_err(), "byte {at}");
            assert!(read(&line[..at]).is_err(), "cut at {at}");
        }
        let newer = seal(&Sample { format: 2, text: String::new() }).unwrap();
        assert!(matches!(read(&newer), Err(StoreError::TooNew { found: 2, known: 1, .. })));
        let older = seal(&Sample { format: 0, text: String::new() }).unwrap();
        assert!(matches!(read(&older), Err(StoreError::Corrupt { .. })), "none was ever written");
    }

    /// Promise 8: a file of an older version is brought up to date step by step when it is read.
    #[test]
    fn older_versions_are_read_by_steps() {
        #[derive(Debug, PartialEq, Serialize, Deserialize)]
        struct Third {
            words: Vec<String>,
        }
        let steps = [
            Step { from: 1, change: |record| record["words"] = record["text"].take() },
            Step { from: 2, change: |record| record["words"] = serde_json::json!([record["words"]]) },
        ];
        let line = seal(&Sample { format: 1, text: "word".into() }).unwrap();
        let read = |steps| open_as::<Third>(&line, || "it".into(), 3, steps);
        assert_eq!(read(&steps).unwrap(), Third { words: vec!["word".into()] });
        assert!(matches!(read(&steps[1..]), Err(StoreError::Corrupt { .. })), "a step is missing");
    }
}
