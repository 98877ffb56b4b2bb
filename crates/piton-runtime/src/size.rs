//! How large a value of a step may be. The limit is far above what belongs into a log; without one, a
//! mistake would fill memory several times over before a store could refuse it.

use piton_store::StoreError;
use piton_types::Value;

/// The most that the input or output of one step may hold, in bytes.
pub(crate) const MAX_VALUE: u64 = 256 << 20;

/// That a value isn't too large.
pub(crate) fn check(value: &Value, what: impl FnOnce() -> String) -> Result<(), StoreError> {
    let size = size(value);
    if size > MAX_VALUE {
        return Err(StoreError::TooLarge { what: what(), size, limit: MAX_VALUE });
    }
    Ok(())
}

/// About how many bytes a value takes.
fn size(value: &Value) -> u64 {
    match value {
        Value::Null | Value::Bool(_) | Value::Int(_) | Value::UInt(_) | Value::Float(_) => 8,
        Value::String(text) => text.len() as u64,
        Value::Bytes(bytes) => bytes.len() as u64,
        Value::List(list) => list.iter().map(size).sum::<u64>() + 8,
        Value::Map(map) => map.iter().map(|(key, value)| key.len() as u64 + size(value)).sum::<u64>() + 8,
    }
}
