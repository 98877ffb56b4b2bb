//! Texts as PostgreSQL can hold them: any but those with a NUL, which is written as two other characters.

/// What a NUL is written with. It is no character, so texts don't have it.
const ESCAPE: char = '\u{10ffff}';

/// A text as it is stored.
pub(crate) fn escape(text: &str) -> String {
    match text.contains(['\0', ESCAPE]) {
        true => text.replace(ESCAPE, "\u{10ffff}1").replace('\0', "\u{10ffff}0"),
        false => text.to_owned(),
    }
}

/// A text as it was before it was stored.
pub(crate) fn unescape(text: String) -> String {
    match text.contains(ESCAPE) {
        true => text.replace("\u{10ffff}0", "\0").replace("\u{10ffff}1", "\u{10ffff}"),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_text_comes_back() {
        for text in ["", "a", "a\0b", "\0", "\u{10ffff}", "\u{10ffff}0", "\0\u{10ffff}1\0"] {
            let stored = escape(text);
            assert!(!stored.contains('\0'));
            assert_eq!(unescape(stored), text);
        }
    }
}
