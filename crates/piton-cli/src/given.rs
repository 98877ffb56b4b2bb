//! What a command was told of where to work: the folder, the store, the key. A command that a message names is pasted into the
//! same shell, so it must be told the same, or it would look elsewhere.

use std::path::Path;

use piton_app::words::typed;

/// The options, in the order in which people write them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Given(Vec<[String; 2]>);

impl Given {
    /// What was said of the folder, the store (as it is shown: without a password) and the key.
    pub(crate) fn new(folder: Option<&Path>, store: Option<&str>, key_file: Option<&Path>) -> Self {
        let path = |path: &Path| path.to_string_lossy().into_owned();
        let said =
            [("-C", folder.map(path)), ("--store", store.map(str::to_owned)), ("--key-file", key_file.map(path))];
        Self(said.into_iter().filter_map(|(option, value)| Some([option.to_owned(), value?])).collect())
    }

    /// The text, with these options in its commands: what begins with `piton ` between backticks. A command that says one
    /// of them itself keeps its own.
    pub(crate) fn put_into(&self, text: &str) -> String {
        if self.0.is_empty() {
            return text.to_owned();
        }
        let pieces = text.split('`').enumerate().map(|(place, piece)| match piece.strip_prefix("piton ") {
            Some(words) if place % 2 == 1 => {
                let is_said = |option: &str| words.split_whitespace().any(|word| word == option);
                let missing = self.0.iter().filter(|[option, _]| !is_said(option));
                let options: Vec<String> = missing.map(|[option, value]| typed(&[option, value])).collect();
                [&["piton".to_owned()], &options[..], &[words.to_owned()]].concat().join(" ")
            }
            _ => piece.to_owned(),
        });
        pieces.collect::<Vec<_>>().join("`")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_have_what_was_given() {
        let given = Given::new(Some(Path::new("my work")), Some("sqlite:a.db"), None);
        let hint = "run r: `piton resume r` goes on, `--force` too; `piton -C there save`, piton log, an odd `piton ls";
        assert_eq!(
            given.put_into(hint),
            "run r: `piton -C 'my work' --store sqlite:a.db resume r` goes on, `--force` too; \
             `piton --store sqlite:a.db -C there save`, piton log, an odd `piton -C 'my work' --store sqlite:a.db ls"
        );
        assert_eq!(Given::default().put_into(hint), hint);
    }
}
