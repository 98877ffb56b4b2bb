//! Folding: 128 entries become a segment, 4 segments one larger one, 4 of those a large one. It goes on
//! in the background; a crash in it loses nothing, because a store adds a segment before it removes what that covers.
//!
//! 128 and not fewer, because a fold is a transaction that other commits may have to wait for: at one in
//! 128 it stays out of the slowest hundredth of them.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use bytes::Bytes;
use piton_types::{RunId, Seq};
use tokio::task::JoinHandle;

use super::RunLog;
use super::append::GROUP;
use super::blobs::RunBlobs;
use crate::pack::Pack;
use crate::sealed;
use crate::segment::{self, SegmentEntries, SegmentNodes, Source};
use piton_store::{Section, Segment, SegmentInfo, Span, Store, StoreError};

/// Entries that are folded at a time.
const SMALL: u32 = 128;

/// Fewer than these are not worth a segment of their own when a log is closed.
const LEAST: u32 = 32;

/// Segments that become one of the next size.
const FAN_IN: usize = 4;

/// How many entries stay unfolded while a run is at work, so that what is read most is at hand.
const LEAVE: u32 = 64;

/// How often others may have folded what is about to be.
const RACES: u32 = 64;

/// When to fold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum When {
    /// While the run is at work.
    Working,
    /// At the end, when nothing more comes for now.
    Closing,
}

/// Segments of a size are merged with each other only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Size {
    Small,
    Medium,
    Large,
}

impl Size {
    const fn of(segment: SegmentInfo) -> Self {
        match segment.last.0 - segment.first.0 {
            0..255 => Self::Small,
            255..1023 => Self::Medium,
            _ => Self::Large,
        }
    }

    /// How tightly it is compressed. The work goes on beside the writer, on cores that aren't always idle: beyond
    /// these levels it takes three times as long and saves a fiftieth.
    const fn level(self) -> i32 {
        match self {
            Self::Small => 3,
            Self::Medium => 6,
            Self::Large => 8,
        }
    }
}

/// How tightly a segment is compressed.
pub(crate) const fn level_of(info: SegmentInfo) -> i32 {
    Size::of(info).level()
}

/// What to fold next, given the segments of a log and its newest entry.
fn plan(segments: &[SegmentInfo], head: Seq, when: When) -> Option<SegmentInfo> {
    let next = segments.last().map_or(0, |last| last.last.0 + 1);
    // The newest entry is never folded, so `head` itself doesn't count.
    let waiting = head.0.saturating_sub(next) / GROUP * GROUP;
    let due = match when {
        When::Working => waiting >= SMALL + LEAVE,
        When::Closing => waiting >= LEAST,
    };
    if due {
        return Some(SegmentInfo { first: Seq(next), last: Seq(next + waiting.min(SMALL) - 1) });
    }
    let alike = |group: &[SegmentInfo]| group.iter().all(|segment| Size::of(*segment) == Size::of(group[0]));
    let group = segments.windows(FAN_IN).find(|group| alike(group) && Size::of(group[0]) != Size::Large)?;
    Some(SegmentInfo { first: group[0].first, last: group[FAN_IN - 1].last })
}

/// Folds all that is due and returns the first entry that isn't folded.
pub(super) async fn fold(
    store: &Arc<dyn Store>,
    run: &RunId,
    blobs: &Arc<RunBlobs>,
    when: When,
) -> Result<Seq, StoreError> {
    if store.folding().is_none() {
        return Ok(Seq(0));
    }
    let mut races = 0;
    while races < RACES {
        let segments = store.segments(run).await?;
        let head = store.head(run).await?.ok_or_else(|| StoreError::no_run(run))?;
        let next = segments.last().map_or(Seq(0), |last| last.last.next());
        let Some(info) = plan(&segments, head.seq, when) else { return Ok(next) };
        let folded = build(store, run, info, &segments).await;
        match folded {
            Ok(segment) => match store.fold(run, segment).await {
                // Another process folded first; look again.
                Err(StoreError::Conflict { .. }) => races += 1,
                other => other?,
            },
            Err(StoreError::NotFound { .. }) => races += 1,
            Err(other) => return Err(other),
        }
        blobs.forget_folded(info);
    }
    // No other process is faster so often: what is there doesn't fit together.
    Err(StoreError::corrupt(format!("run {run}"), "entries of its log are missing, or are there twice"))
}

async fn build(
    store: &Arc<dyn Store>,
    run: &RunId,
    info: SegmentInfo,
    segments: &[SegmentInfo],
) -> Result<Segment, StoreError> {
    let covered: Vec<_> =
        segments.iter().filter(|segment| segment.first >= info.first && segment.last <= info.last).copied().collect();
    let mut sections = Vec::with_capacity(covered.len());
    for part in covered {
        let entries = store.section(run, part, Section::Entries).await?;
        sections.push((part, entries, store.section(run, part, Section::Nodes).await?));
    }
    let span = Span { from: info.first, to: info.last, packs: true, ..Span::ALL };
    let records = if sections.is_empty() { store.read(run, span).await? } else { Vec::new() };
    let (hashing, run) = (store.hashing().clone(), run.clone());
    let work = move || -> Result<Segment, StoreError> {
        let mut source = Source { run: &run, info, entries: Vec::new(), nodes: Vec::new() };
        let mut seen = HashSet::new();
        // The nodes of the entries so far, for those that are differences from them.
        let mut group: HashMap<Seq, Vec<Bytes>> = HashMap::new();
        for (part, entries, nodes) in &sections {
            source.entries.extend(SegmentEntries::open(&hashing, &run, *part, entries)?);
            let nodes = SegmentNodes::open(&run, *part, nodes)?;
            for (place, id) in (0..).zip(nodes.ids(&hashing)?) {
                if seen.insert(*id) {
                    source.nodes.push((*id, nodes.canonical(&hashing, place)?));
                }
            }
        }
        for record in records {
            if record.seq.0.is_multiple_of(GROUP) {
                group.clear();
            }
            if !record.pack.is_empty() {
                let pack = Pack::open(record.pack.clone())?;
                let nodes = pack.nodes(|base| group.get(&base.seq)?.get(base.place as usize).cloned())?;
                group.insert(record.seq, nodes.iter().map(|(_, node)| node.clone()).collect());
                source.nodes.extend(nodes.into_iter().filter(|(id, _)| seen.insert(*id)));
            }
            let entry = sealed::open(&hashing, &run, &record)?;
            source.entries.push((record, entry));
        }
        if source.entries.len() as u64 != info.len() {
            return Err(StoreError::NotFound { what: format!("entries {info} of run {run}") });
        }
        check_chain(&source)?;
        segment::build(&hashing, &source, Size::of(info).level())
    };
    match tokio::runtime::Handle::try_current() {
        Ok(runtime) => runtime
            .spawn_blocking(work)
            .await
            .unwrap_or_else(|panic| Err(StoreError::Invalid { what: "folding".to_owned(), detail: panic.to_string() })),
        Err(_) => work(),
    }
}

/// Damage must not be folded into something that looks whole.
fn check_chain(source: &Source<'_>) -> Result<(), StoreError> {
    for pair in source.entries.windows(2) {
        if pair[1].1.parent != pair[0].1.hash {
            return Err(StoreError::corrupt(
                format!("run {}", source.run),
                format!("entry {} doesn't follow entry {}", pair[1].1.seq, pair[0].1.seq),
            ));
        }
    }
    Ok(())
}

/// What a handle knows of the folding of its log.
#[derive(Default)]
pub(super) struct Folder {
    /// The first entry that isn't folded, as far as is known: a handle that was just opened begins at 0
    /// and learns better from its first fold.
    next: Arc<AtomicU32>,
    /// Set once folding failed: it isn't worth trying again with every append.
    failed: Arc<AtomicBool>,
    task: Option<JoinHandle<()>>,
}

impl Folder {
    pub(super) async fn finish(&mut self) {
        if let Some(task) = self.task.take() {
            // A panic in there was the task's own; the log is as it was.
            drop(task.await);
        }
    }
}

impl RunLog {
    /// Starts folding if enough has come together and nothing is being folded.
    pub(super) fn fold_if_due(&mut self) {
        let next = self.folder.next.load(Ordering::Relaxed);
        let due = self.head.seq.0.saturating_sub(next) >= SMALL + LEAVE;
        let idle = self.folder.task.as_ref().is_none_or(JoinHandle::is_finished);
        if !due || !idle || self.folder.failed.load(Ordering::Relaxed) {
            return;
        }
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let (store, run, blobs) = (Arc::clone(&self.store), self.run.clone(), Arc::clone(&self.blobs));
        let (next, failed) = (Arc::clone(&self.folder.next), Arc::clone(&self.folder.failed));
        self.folder.task = Some(runtime.spawn(async move {
            match fold(&store, &run, &blobs, When::Working).await {
                Ok(folded) => next.store(folded.0, Ordering::Relaxed),
                Err(error) => {
                    tracing::warn!(%run, %error, "folding failed; the log is whole but stays larger");
                    failed.store(true, Ordering::Relaxed);
                }
            }
        }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(first: u32, last: u32) -> SegmentInfo {
        SegmentInfo { first: Seq(first), last: Seq(last) }
    }

    #[test]
    fn plans_new_segments_first_and_never_the_newest_entry() {
        assert_eq!(plan(&[], Seq(31), When::Closing), None);
        assert_eq!(plan(&[], Seq(32), When::Closing), Some(info(0, 31)));
        assert_eq!(plan(&[], Seq(500), When::Closing), Some(info(0, 127)));
        assert_eq!(plan(&[], Seq(191), When::Working), None);
        assert_eq!(plan(&[], Seq(192), When::Working), Some(info(0, 127)));
        assert_eq!(plan(&[info(0, 127)], Seq(160), When::Closing), Some(info(128, 159)));
    }

    #[test]
    fn four_of_a_size_merge_until_they_are_large() {
        let mut segments = Vec::new();
        let mut written = 0;
        while let Some(next) = plan(&segments, Seq(20_000), When::Closing) {
            segments.retain(|segment: &SegmentInfo| segment.first < next.first || segment.first > next.last);
            segments.push(next);
            segments.sort_by_key(|segment| segment.first);
            written += next.len();
        }
        let sizes: Vec<_> = segments.iter().map(|segment| Size::of(*segment)).collect();
        assert_eq!(sizes, [vec![Size::Large; 9], vec![Size::Medium; 3], vec![Size::Small; 1]].concat());
        assert!(segments.windows(2).all(|pair| pair[0].last.next() == pair[1].first));
        assert_eq!(segments.last().unwrap().last, Seq(19_999));
        assert!(written < 3 * 20_000, "each entry is written at most once per size");
    }
}
