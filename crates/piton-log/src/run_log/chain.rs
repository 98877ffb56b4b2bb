//! Several entries at once: each is prepared as if the one before it were in the log already, and then all of them
//! are one commit.
//!
//! Other processes may have written meanwhile. Then none of these entries is in the log, and the caller makes the
//! states in them anew.

use piton_types::{Seq, Timestamp};

use super::append::is_there;
use super::{Draft, RunLog};
use piton_store::{Commit, Head, StoreError};

/// How many bytes of values the entries of a chain bring together, about. A store's other writers wait meanwhile.
const LONG: usize = 256 << 10;

/// Entries that were prepared and aren't in the log yet.
#[derive(Debug, Default)]
pub struct Chain {
    commits: Vec<Commit>,
    /// Where the log ended before the first of them.
    before: Option<(Head, Timestamp)>,
    bytes: usize,
}

impl Chain {
    /// How many entries it has.
    pub fn len(&self) -> usize {
        self.commits.len()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.commits.is_empty()
    }

    /// Whether another entry should wait for the next one.
    pub fn is_long(&self) -> bool {
        self.bytes >= LONG
    }
}

impl RunLog {
    /// Adds an entry to a chain, and returns the number that it will have. Until the chain is
    /// [appended](Self::append_chain), nothing else is, and the states in the draft count as saved.
    pub async fn add_to_chain(&mut self, chain: &mut Chain, draft: &mut Draft<'_>) -> Result<Seq, StoreError> {
        let (commit, accepted) = self.prepare(draft).await?;
        chain.bytes += commit.entry.len() + commit.pack.len();
        chain.before.get_or_insert((self.head, self.at));
        let seq = commit.seq;
        chain.commits.push(commit);
        self.accept(accepted, draft);
        Ok(seq)
    }

    /// Appends the entries of a chain, in one commit.
    ///
    /// If that fails, the log ends as before, and the states that were saved in the entries are to be loaded again.
    pub async fn append_chain(&mut self, chain: Chain) -> Result<(), StoreError> {
        let Chain { commits, before, .. } = chain;
        let (Some(last), Some(before)) = (commits.last(), before) else { return Ok(()) };
        let head = Head { seq: last.seq, hash: last.hash, fence: last.fence };
        if let Err(error) = self.store.append(commits).await
            && !is_there(&*self.store, &self.run, head, &error).await
        {
            self.go_back(before);
            return Err(error);
        }
        self.fold_if_due();
        Ok(())
    }

    /// Forgets the entries behind where the log ended then.
    fn go_back(&mut self, end: (Head, Timestamp)) {
        (self.head, self.at) = end;
        self.newest = None;
        self.parts.clear();
        self.known.clear();
        self.blobs.forget_from(self.head.seq.next());
    }
}
