//! Several entries at once: each is prepared as if the one before it were in the log already, and then all of them
//! are one commit.
//!
//! Others may have written meanwhile. Then the log ends where it did before, and whoever saved states in these entries
//! makes them anew.

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
    /// Where the log ended before each of them.
    ends: Vec<(Head, Timestamp)>,
    bytes: usize,
}

impl Chain {
    /// Whether another entry should wait for the next one.
    pub fn is_long(&self) -> bool {
        self.bytes >= LONG
    }
}

/// What became of a chain.
#[derive(Debug)]
pub struct Chained {
    /// How many of its entries are in the log.
    pub appended: usize,
    /// Why the others aren't.
    pub error: Option<StoreError>,
}

impl RunLog {
    /// Adds an entry to a chain, and returns the number that it will have. Until the chain is
    /// [appended](Self::append_chain), nothing else is, and the states in the draft count as saved.
    pub async fn add_to_chain(&mut self, chain: &mut Chain, draft: &mut Draft<'_>) -> Result<Seq, StoreError> {
        let (commit, accepted) = self.prepare(draft).await?;
        // One that needs more than a row goes by itself.
        let is_heavy = !commit.staged.is_empty() || commit.index.is_some() || commit.era.is_some();
        chain.bytes += if is_heavy { LONG } else { commit.entry.len() + commit.pack.len() };
        chain.ends.push((self.head, self.at));
        let seq = commit.seq;
        chain.commits.push(commit);
        self.accept(accepted, draft);
        Ok(seq)
    }

    /// Appends the entries of a chain: in one commit, or in several where the store can't do that.
    ///
    /// If that fails, the log ends behind those that are there, as before, and the states that were saved in the others
    /// are to be loaded again.
    pub async fn append_chain(&mut self, chain: Chain) -> Chained {
        let Chain { mut commits, ends, .. } = chain;
        let (count, mut appended, mut error) = (commits.len(), 0, None);
        let heavy = commits.pop_if(|last| !last.staged.is_empty() || last.index.is_some() || last.era.is_some());
        let is_one_by_one = !self.store.capabilities().chain;
        while error.is_none() && appended < count {
            let now = match commits.is_empty() {
                true => heavy.iter().cloned().collect(),
                false if is_one_by_one => commits.drain(..1).collect(),
                false => std::mem::take(&mut commits),
            };
            let length = now.len();
            match self.append_now(now).await {
                Ok(()) => appended += length,
                Err(failure) => error = Some(failure),
            }
        }
        if error.is_some() {
            self.go_back(&ends[appended]);
        } else {
            self.fold_if_due();
        }
        Chained { appended, error }
    }

    async fn append_now(&self, mut commits: Vec<Commit>) -> Result<(), StoreError> {
        let Some(last) = commits.last() else { return Ok(()) };
        let head = Head { seq: last.seq, hash: last.hash, fence: last.fence };
        let one = if commits.len() == 1 { commits.pop() } else { None };
        let answer = match one {
            Some(commit) => self.store.append(commit).await,
            None => self.store.append_chain(commits).await,
        };
        match answer {
            Err(error) if !is_there(&*self.store, &self.run, head, &error).await => Err(error),
            _ => Ok(()),
        }
    }

    /// Forgets the entries behind where the log ended then.
    fn go_back(&mut self, end: &(Head, Timestamp)) {
        (self.head, self.at) = *end;
        self.newest = None;
        self.parts.clear();
        self.known.clear();
        self.blobs.forget_from(self.head.seq.next());
    }
}
