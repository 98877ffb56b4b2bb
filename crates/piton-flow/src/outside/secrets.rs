//! What must not be shown, and how it is kept out of texts that people read.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use piton_model::{ExposeSecret, SecretString};

/// Shorter ones would turn up everywhere by chance.
const SHORTEST: usize = 6;

/// Secrets by name. A text without them has `[secret:NAME]` in their place, also where they stand in base64,
/// in hex, or escaped for a URL.
#[derive(Debug, Clone, Default)]
pub(crate) struct Secrets(Vec<(String, SecretString)>);

impl Secrets {
    /// These.
    pub(crate) fn new(secrets: Vec<(String, SecretString)>) -> Self {
        let mut kept = Self::default();
        for (name, secret) in secrets {
            kept.add(name, secret);
        }
        kept
    }

    /// One more. One that is too short to be told from ordinary text is left out.
    pub(crate) fn add(&mut self, name: String, secret: SecretString) {
        if secret.expose_secret().len() >= SHORTEST {
            self.0.push((name, secret));
        }
    }

    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The next piece of a text that comes in pieces, without them. What may be the beginning of one is kept in
    /// `held` until it is known; at the end `held` has the rest, which has none.
    pub(crate) fn redact_piece(&self, held: &mut String, piece: &str) -> String {
        held.push_str(piece);
        if self.is_empty() {
            return std::mem::take(held);
        }
        let mut text = self.redact(held);
        *held = text.split_off(text.len() - self.begun(&text));
        text
    }

    /// How many bytes at the end of a text may be the beginning of a secret.
    fn begun(&self, text: &str) -> usize {
        let mut longest = 0;
        for (_, secret) in &self.0 {
            let secret = secret.expose_secret();
            let token = secret.split_once(' ').map(|(_, token)| token.to_owned());
            for form in forms(secret).into_iter().chain(token) {
                let starts = text.char_indices().rev().map(|(start, _)| start);
                let near = starts.take_while(|start| text.len() - start < form.len());
                let begun = near.filter(|start| form.starts_with(&text[*start..])).map(|start| text.len() - start);
                longest = longest.max(begun.max().unwrap_or(0));
            }
        }
        longest
    }

    /// The text without them.
    pub(crate) fn redact(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for (name, secret) in &self.0 {
            let secret = secret.expose_secret();
            for form in forms(secret) {
                if text.contains(&form) {
                    text = text.replace(&form, &format!("[secret:{name}]"));
                }
            }
            // A scheme and its token: the token alone is as secret.
            if let Some((_, token)) = secret.split_once(' ').filter(|(_, token)| token.len() >= SHORTEST) {
                text = text.replace(token, &format!("[secret:{name}]"));
            }
        }
        text
    }
}

fn forms(secret: &str) -> Vec<String> {
    let hex: String = secret.bytes().map(|byte| format!("{byte:02x}")).collect();
    let mut forms = vec![secret.to_owned(), hex.to_uppercase(), hex];
    // Base64 looks different at each of three offsets; what is inside is the same but for its edges.
    for offset in 0..3 {
        let padded = [vec![0; offset], secret.as_bytes().to_vec()].concat();
        for encoded in [STANDARD.encode(&padded), URL_SAFE_NO_PAD.encode(&padded)] {
            let encoded = encoded.trim_end_matches('=');
            let (start, end) = (if offset == 0 { 0 } else { offset + 1 }, encoded.len() - 1);
            if end > start && end - start >= SHORTEST {
                forms.push(encoded[start..end].to_owned());
            }
        }
    }
    forms.push(url::form_urlencoded::byte_serialize(secret.as_bytes()).collect());
    forms
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Promise 26: a canary in clear, in base64 at every offset, in hex, in a URL.
    #[test]
    fn a_secret_is_found_in_every_form() {
        let secrets = Secrets::new(vec![("key".to_owned(), "canary/söngs+7".into())]);
        let canary = "canary/söngs+7";
        let hex: String = canary.bytes().map(|byte| format!("{byte:02x}")).collect();
        let mut texts = vec![canary.to_owned(), hex.clone(), hex.to_uppercase(), "canary%2Fs%C3%B6ngs%2B7".to_owned()];
        for before in ["", "x", "xy", "xyz", "user:"] {
            for after in ["", "a", "ab"] {
                texts.push(STANDARD.encode(format!("{before}{canary}{after}")));
                texts.push(URL_SAFE_NO_PAD.encode(format!("{before}{canary}{after}")));
            }
        }
        for text in texts {
            let shown = secrets.redact(&format!("failed: <{text}>"));
            assert!(shown.contains("[secret:key]"), "{text}: {shown}");
        }
        assert_eq!(secrets.redact("nothing here"), "nothing here");
    }

    /// A secret that a node streams piece by piece is in no piece that is passed on.
    #[test]
    fn a_secret_is_found_however_a_text_is_cut() {
        let secrets = Secrets::new(vec![("key".to_owned(), "abab-canary".into())]);
        let hex: String = "abab-canary".bytes().map(|byte| format!("{byte:02x}")).collect();
        for text in ["say abab-canary, abab!".to_owned(), format!("x{hex}y"), "ababab-canary".to_owned()] {
            for cut in 1..text.len() {
                for second in cut..text.len() {
                    let mut held = String::new();
                    let mut shown: String = [&text[..cut], &text[cut..second], &text[second..]]
                        .into_iter()
                        .map(|piece| secrets.redact_piece(&mut held, piece))
                        .collect();
                    shown.push_str(&held);
                    assert_eq!(shown, secrets.redact(&text), "{cut} {second}");
                }
            }
        }
        let mut held = String::new();
        assert_eq!(secrets.redact_piece(&mut held, "nothing to hide"), "nothing to hide");
        assert!(held.is_empty());
    }

    #[test]
    fn the_token_of_a_header_is_a_secret_by_itself() {
        let secrets = Secrets::new(vec![("header".to_owned(), "Bearer abcdef123".into())]);
        assert_eq!(secrets.redact("got abcdef123!"), "got [secret:header]!");
    }
}
