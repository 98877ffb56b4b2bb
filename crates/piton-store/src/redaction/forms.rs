//! The forms in which a secret turns up: as it is, in hex, in base64 at each of three offsets, in a URL.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};

/// Shorter ones would turn up everywhere by chance.
pub(super) const SHORTEST: usize = 6;

/// Every form, the secret itself first. Their order is part of what is stored (`secret:NAME~3`).
pub(super) fn of(secret: &[u8]) -> Vec<Vec<u8>> {
    let hex: String = secret.iter().map(|byte| format!("{byte:02x}")).collect();
    let mut forms = vec![secret.to_vec(), hex.to_uppercase().into_bytes(), hex.into_bytes()];
    for offset in 0..3 {
        // What is inside is the same whatever stands around it, but for its edges.
        let padded = [vec![0; offset], secret.to_vec()].concat();
        let start = (offset * 8).div_ceil(6);
        let end = padded.len() * 8 / 6;
        for encoded in [STANDARD_NO_PAD.encode(&padded), URL_SAFE_NO_PAD.encode(&padded)] {
            forms.push(encoded.as_bytes()[start..end].to_vec());
        }
    }
    let escape = |byte: &u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => char::from(*byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    forms.push(secret.iter().map(escape).collect::<String>().into_bytes());
    forms
}
