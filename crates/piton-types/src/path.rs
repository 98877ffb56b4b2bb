//! Paths into a [`Value`](crate::Value), written as JSON Pointers: `/messages/3/content`.

use std::fmt;
use std::str::FromStr;

/// One step of a [`Path`].
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Segment {
    /// A key of a map; in a list, its decimal digits count as an index.
    Key(String),
    /// A place in a list.
    Index(usize),
}

/// A place inside a value. The empty path is the value itself.
///
/// ```
/// use piton_types::Path;
/// let path: Path = "/messages/3/content".parse().unwrap();
/// assert_eq!(path, Path::root().key("messages").index(3).key("content"));
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Path(Vec<Segment>);

/// Why a text is not a path.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("path {text:?} is not valid: {reason}")]
pub struct InvalidPath {
    /// The offending text.
    pub text: String,
    /// What is wrong with it.
    pub reason: &'static str,
}

impl Path {
    /// The empty path.
    pub const fn root() -> Self {
        Self(Vec::new())
    }

    /// This path and then a map's key.
    #[must_use]
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.0.push(Segment::Key(key.into()));
        self
    }

    /// This path and then a list's index.
    #[must_use]
    pub fn index(mut self, index: usize) -> Self {
        self.0.push(Segment::Index(index));
        self
    }

    /// The steps of the path.
    pub fn segments(&self) -> &[Segment] {
        &self.0
    }

    /// Appends a step.
    pub fn push(&mut self, segment: Segment) {
        self.0.push(segment);
    }

    /// Removes and returns the last step.
    pub fn pop(&mut self) -> Option<Segment> {
        self.0.pop()
    }
}

impl Segment {
    /// The index that this step means in a list.
    pub fn as_index(&self) -> Option<usize> {
        match self {
            Self::Index(index) => Some(*index),
            // "+1" and "01" parse as numbers but are not how an index is written.
            Self::Key(key) => key.parse().ok().filter(|index: &usize| index.to_string() == *key),
        }
    }

    /// The key that this step means in a map.
    pub fn as_key(&self) -> std::borrow::Cow<'_, str> {
        match self {
            Self::Index(index) => index.to_string().into(),
            Self::Key(key) => key.as_str().into(),
        }
    }
}

impl FromStr for Path {
    type Err = InvalidPath;

    fn from_str(text: &str) -> Result<Self, InvalidPath> {
        let fail = |reason| Err(InvalidPath { text: text.chars().take(80).collect(), reason });
        let Some(rest) = text.strip_prefix('/') else {
            return if text.is_empty() { Ok(Self::root()) } else { fail("it must be empty or start with '/'") };
        };
        let mut path = Self::root();
        for part in rest.split('/') {
            let mut key = String::with_capacity(part.len());
            let mut chars = part.chars();
            while let Some(c) = chars.next() {
                key.push(match (c, if c == '~' { chars.next() } else { None }) {
                    ('~', Some('0')) => '~',
                    ('~', Some('1')) => '/',
                    ('~', _) => return fail("'~' must be followed by 0 or 1"),
                    (c, _) => c,
                });
            }
            let key = Segment::Key(key);
            path.push(key.as_index().map_or(key, Segment::Index));
        }
        Ok(path)
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|segment| write!(f, "/{}", segment.as_key().replace('~', "~0").replace('/', "~1")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_what_it_prints() {
        for text in ["", "/a", "/a/0/b", "/a~1b/~0", "/", "/01", "/-"] {
            assert_eq!(text.parse::<Path>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn an_index_is_written_one_way() {
        let segments = |text: &str| text.parse::<Path>().unwrap().segments().to_vec();
        assert_eq!(segments("/7"), [Segment::Index(7)]);
        assert_eq!(segments("/07"), [Segment::Key("07".into())]);
        assert_eq!(segments("/+7"), [Segment::Key("+7".into())]);
    }

    #[test]
    fn malformed_paths_are_refused() {
        for bad in ["a", "/~", "/~2"] {
            assert!(bad.parse::<Path>().is_err());
        }
    }
}
