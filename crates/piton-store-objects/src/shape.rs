//! Which objects a log consists of.
//!
//! Invariant: entries and segments together cover 0 to the newest entry without a gap. An entry that a segment covers
//! doesn't count, and neither does a segment inside a larger one: they are what a crash left, or what a fold is about
//! to delete. A gap is damage. A reader that reads across it gets an error; what lies on either side can still be read.

use piton_store::{SegmentInfo, StoreError};
use piton_types::{RunId, Seq};

use crate::names::numbers;
use crate::objects::Objects;
use crate::run::{ATTEMPTS, Known, Run};

/// The objects of a log.
#[derive(Debug)]
pub(crate) struct Shape {
    /// The number of the object of entry 0.
    pub(crate) base: u64,
    /// Segments that count, ascending, with their sizes.
    pub(crate) segments: Vec<(SegmentInfo, u64)>,
    /// Objects with entries that count, ascending.
    pub(crate) objects: Vec<Stretch>,
    /// Objects that something else stands for.
    pub(crate) leftovers: Vec<String>,
    /// What is missing in between: from one entry to another.
    gaps: Vec<(Seq, Seq)>,
}

/// An object with entries.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stretch {
    pub(crate) number: u64,
    pub(crate) first: Seq,
    pub(crate) last: Seq,
    pub(crate) size: u64,
}

impl Shape {
    /// Whether a segment has this entry.
    pub(crate) fn is_folded(&self, seq: Seq) -> bool {
        let place = self.segments.partition_point(|(info, _)| info.last < seq);
        self.segments.get(place).is_some_and(|(info, _)| info.first <= seq)
    }

    /// The entries that no segment has, each with the number of its object, ascending.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (u64, Seq)> {
        let each = |stretch: &Stretch| {
            let number = stretch.number;
            (stretch.first.0..=stretch.last.0).map(move |seq| (number, Seq(seq)))
        };
        self.objects.iter().flat_map(each).filter(|(_, seq)| !self.is_folded(*seq))
    }

    /// The errors for what is missing of `run` between two entries.
    pub(crate) fn missing(&self, run: &RunId, from: Seq, to: Seq) -> impl Iterator<Item = StoreError> {
        let inside = self.gaps.iter().map(move |(first, last)| (*first.max(&from), *last.min(&to)));
        inside.filter(|(first, last)| first <= last).map(move |(first, last)| {
            let what = match first == last {
                true => format!("entry {first} of run {run}"),
                false => format!("entries {first} to {last} of run {run}"),
            };
            StoreError::corrupt(what, "it is missing")
        })
    }

    /// An error if something is missing between two entries.
    pub(crate) fn whole(&self, run: &RunId, from: Seq, to: Seq) -> Result<(), StoreError> {
        self.missing(run, from, to).next().map_or(Ok(()), Err)
    }
}

impl Run {
    /// Which objects the log consists of. `NotFound` if there is no such run.
    pub(crate) async fn shape(&self, objects: &dyn Objects, known: &mut Known) -> Result<Shape, StoreError> {
        // A list that is made during a fold can miss both the old and the new. The next one doesn't.
        let mut shape = self.try_shape(objects, known).await;
        for _ in 0..4 {
            match &shape {
                Ok(shape) if !shape.gaps.is_empty() => {}
                Err(StoreError::Corrupt { .. }) => {}
                _ => break,
            }
            shape = self.try_shape(objects, known).await;
        }
        shape
    }

    async fn try_shape(&self, objects: &dyn Objects, known: &mut Known) -> Result<Shape, StoreError> {
        'again: for _ in 0..ATTEMPTS {
            let (base, end) = self.base(objects, known).await?;
            // Entries before segments: what is folded in between is then in both lists, not in neither.
            let all = self.numbers(objects).await?;
            let live: Vec<_> = all.into_iter().filter(|(number, _)| *number >= base).collect();
            let mut stretches = Vec::with_capacity(live.len());
            for (place, (number, size)) in live.iter().copied().enumerate() {
                let next = live.get(place + 1).map(|(next, _)| *next);
                let last = if next == Some(number + 1) {
                    number
                } else if let Some(end) = end.as_ref().filter(|end| end.object == number) {
                    end.next() - 1
                } else if let Some(last) = known.bursts.get(&number) {
                    *last
                } else {
                    match self.object(objects, number).await {
                        Ok(Some(object)) if !object.entries.is_empty() => {
                            let last = number + object.entries.len() as u64 - 1;
                            known.bursts.insert(number, last);
                            last
                        }
                        // Folded or removed since, or removed and begun anew.
                        Ok(_) => continue 'again,
                        // How many entries it had isn't known.
                        Err(StoreError::Corrupt { .. } | StoreError::TooNew { .. }) => number,
                        Err(error) => return Err(error),
                    }
                };
                stretches.push(Stretch { number, first: seq(base, number)?, last: seq(base, last)?, size });
            }
            let segments = self.segments(objects, base).await?;
            return self.arrange(base, segments, stretches);
        }
        Err(StoreError::Unavailable { detail: format!("run {} changes faster than it can be read", self.id) })
    }

    /// Every segment of a run with this base, whether it counts or not, with its size.
    pub(crate) async fn segments(
        &self,
        objects: &dyn Objects,
        base: u64,
    ) -> Result<Vec<(SegmentInfo, u64)>, StoreError> {
        let mut found = Vec::new();
        for listed in objects.list(&self.names.at("segments"), None, usize::MAX).await? {
            let extent = listed.name.strip_suffix(".segment").and_then(numbers);
            if let Some((first, last)) = extent.filter(|(first, last)| (base..=*last).contains(first)) {
                let info = SegmentInfo { first: seq(base, first)?, last: seq(base, last)? };
                found.push((info, listed.size.unwrap_or(0)));
            }
        }
        found.sort_unstable_by_key(|(info, _)| (info.first, std::cmp::Reverse(info.last)));
        Ok(found)
    }

    /// The name of a segment.
    pub(crate) fn segment_name(&self, base: u64, info: SegmentInfo) -> String {
        self.names.segment(base + u64::from(info.first.0), base + u64::from(info.last.0))
    }

    fn arrange(&self, base: u64, found: Vec<(SegmentInfo, u64)>, stretches: Vec<Stretch>) -> Result<Shape, StoreError> {
        let mut shape =
            Shape { base, segments: Vec::new(), objects: Vec::new(), leftovers: Vec::new(), gaps: Vec::new() };
        for (info, size) in found {
            if let Some((before, _)) = shape.segments.last().copied()
                && info.first <= before.last
            {
                let name = self.segment_name(base, info);
                if info.last <= before.last {
                    shape.leftovers.push(name);
                    continue;
                }
                // Two folds met, and one of them died before it gave way. Of that one the entries are still there.
                let is_there = |first: Seq, last: Seq| {
                    (first.0..=last.0).all(|seq| stretches.iter().any(|s| s.first.0 <= seq && seq <= s.last.0))
                };
                if is_there(Seq(before.last.0 + 1), info.last) {
                    shape.leftovers.push(name);
                    continue;
                }
                if !is_there(before.first, Seq(info.first.0 - 1)) {
                    let what = format!("entry {} of run {}", info.first, self.id);
                    return Err(StoreError::corrupt(what, "it is there twice"));
                }
                shape.leftovers.push(self.segment_name(base, before));
                shape.segments.pop();
            }
            shape.segments.push((info, size));
        }
        for stretch in stretches {
            match (stretch.first.0..=stretch.last.0).all(|seq| shape.is_folded(Seq(seq))) {
                true => shape.leftovers.push(self.names.entry(stretch.number)),
                false => shape.objects.push(stretch),
            }
        }
        if shape.objects.is_empty() {
            return Err(StoreError::corrupt(format!("run {}", self.id), "its newest entry is missing"));
        }
        let mut spans: Vec<_> = shape.segments.iter().map(|(info, _)| (info.first, info.last)).collect();
        spans.extend(shape.objects.iter().map(|stretch| (stretch.first, stretch.last)));
        spans.sort_unstable();
        let mut next = Seq(0);
        for (first, last) in spans {
            if first > next {
                shape.gaps.push((next, Seq(first.0 - 1)));
            }
            next = next.max(last.next());
        }
        Ok(shape)
    }
}

/// The entry whose object would have this number.
fn seq(base: u64, number: u64) -> Result<Seq, StoreError> {
    let seq = number.checked_sub(base).and_then(|seq| u32::try_from(seq).ok());
    seq.map(Seq).ok_or_else(|| StoreError::corrupt(format!("object {number}"), "its number is too large"))
}
