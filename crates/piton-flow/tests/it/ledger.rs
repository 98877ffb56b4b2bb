//! A folder that the programs of a workflow run in, and what they leave there: what really ran, as an observer outside
//! of the run saw it.

use std::collections::BTreeMap;

use piton_flow::{FlowOptions, Format, Inputs, StartFlow};
use piton_types::RunId;

/// The run that every ledger is about.
pub(crate) fn id() -> RunId {
    "order-7".parse().unwrap()
}

/// The folder. Programs of the document add lines to the file `ledger` in it.
pub(crate) struct Ledger {
    folder: tempfile::TempDir,
    document: &'static str,
    inputs: Inputs,
}

impl Ledger {
    /// A folder for runs of this document with these inputs.
    pub(crate) fn of(document: &'static str, inputs: Inputs) -> Self {
        Self { folder: tempfile::tempdir().unwrap(), document, inputs }
    }

    pub(crate) fn path(&self) -> &std::path::Path {
        self.folder.path()
    }

    /// How the run is begun, or gone on with.
    pub(crate) fn start(&self) -> StartFlow {
        StartFlow {
            config: None,
            priority: 0,
            estimated_complexity: None,
            document: self.document.to_owned(),
            format: Format::Yaml,
            inputs: self.inputs.clone(),
            system: BTreeMap::new(),
            conversation: BTreeMap::new(),
            id: Some(id()),
            name: "order".to_owned(),
            folder: self.path().to_str().map(str::to_owned),
            labels: Default::default(),
            options: FlowOptions::default(),
        }
    }

    /// What was done, in order.
    pub(crate) fn lines(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.path().join("ledger")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// For each deed, the words that were written behind it.
    pub(crate) fn deeds(&self) -> BTreeMap<String, Vec<String>> {
        let mut deeds = BTreeMap::<_, Vec<_>>::new();
        for line in self.lines() {
            let (deed, key) = line.split_once(' ').unwrap();
            deeds.entry(deed.to_owned()).or_default().push(key.to_owned());
        }
        deeds
    }
}
