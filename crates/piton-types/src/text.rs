//! Texts that are shown to people.

use std::borrow::Cow;

/// The text, or its beginning with a note of how much of it was cut, so that at most `most` bytes of it are kept.
pub fn excerpt(text: &str, most: usize) -> Cow<'_, str> {
    if text.len() <= most {
        return Cow::Borrowed(text);
    }
    let end = text.floor_char_boundary(most);
    Cow::Owned(format!("{}… ({} more bytes were cut)", &text[..end], text.len() - end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_cut_is_said() {
        assert_eq!(excerpt("grün", 5), "grün");
        assert_eq!(excerpt("grüne", 5), "grün… (1 more bytes were cut)");
        assert_eq!(excerpt("grüne", 3), "gr… (4 more bytes were cut)");
    }
}
