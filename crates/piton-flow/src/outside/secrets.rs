//! What must not be shown, and how it is kept out of texts that people read.

use piton_model::{ExposeSecret, SecretString};
use piton_types::{KnownSecrets, SHORTEST_SECRET};

/// Secrets by name. A text without them has `[secret:NAME]` in their place, in whatever form they stand there.
#[derive(Debug)]
pub(crate) struct Secrets(KnownSecrets);

impl Secrets {
    /// These. One that is too short to be told from ordinary text is left out.
    pub(crate) fn new(secrets: &[(String, SecretString)]) -> Result<Self, String> {
        let known = secrets.iter().flat_map(|(name, secret)| {
            let secret = secret.expose_secret();
            // A scheme and its token: the token alone is as secret.
            let token = secret.split_once(' ').map(|(_, token)| token);
            [Some(secret), token].into_iter().flatten().map(|secret| (name.clone(), secret))
        });
        KnownSecrets::new(known.filter(|(_, secret)| secret.len() >= SHORTEST_SECRET)).map(Self)
    }

    /// The next piece of a text that comes in pieces, without them. What may be the beginning of one is kept in
    /// `held` until it is known; at the end `held` has the rest, which has none.
    pub(crate) fn redact_piece(&self, held: &mut String, piece: &str) -> String {
        held.push_str(piece);
        let mut text = self.redact(held);
        *held = text.split_off(text.len() - self.0.begun(&text));
        text
    }

    /// The text without them.
    pub(crate) fn redact(&self, text: &str) -> String {
        let (mut shown, mut from) = (String::with_capacity(text.len()), 0);
        for place in self.0.find(text.as_bytes()) {
            shown.push_str(&text[from..place.range().start]);
            shown.push_str(&format!("[secret:{}]", self.0.name(place.secret)));
            from = place.range().end;
        }
        shown + &text[from..]
    }
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};

    use super::*;

    fn secrets(name: &str, secret: &str) -> Secrets {
        Secrets::new(&[(name.to_owned(), secret.into())]).unwrap()
    }

    /// Promise 26: a canary in clear, in base64 at every offset, in hex, in a URL.
    #[test]
    fn a_secret_is_found_in_every_form() {
        let secrets = secrets("key", "canary/söngs+7");
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
        let secrets = secrets("key", "abab-canary");
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
        let secrets = secrets("header", "Bearer abcdef123");
        assert_eq!(secrets.redact("got abcdef123!"), "got [secret:header]!");
    }
}
