//! Appending, reading and folding.

use async_trait::async_trait;
use bytes::Bytes;
use piton_store::{Commit, Fold, Head, Log, Record, Section, Segment, SegmentInfo, Span, StoreError};
use piton_types::{Durability, RunId, RunStatus, Seq};

use crate::commit::CommitObject;
use crate::objects::{Objects, Part};
use crate::run::{ATTEMPTS, End, Found, Known, Run};
use crate::store::ObjectStore;
use crate::{readable, segment};

#[async_trait]
impl Log for ObjectStore {
    async fn append(&self, commits: Vec<Commit>) -> Result<(), StoreError> {
        Commit::check_together(&commits)?;
        match commits.is_empty() {
            true => Ok(()),
            false => self.commit(commits).await,
        }
    }

    async fn head(&self, run: &RunId) -> Result<Option<Head>, StoreError> {
        let (objects, run) = (self.objects()?, self.run(run));
        let mut known = run.known.lock().await;
        Ok(run.end(objects, &mut known).await?.end().map(|end| end.head))
    }

    async fn read(&self, run: &RunId, span: Span) -> Result<Vec<Record>, StoreError> {
        let (objects, run) = (self.objects()?, self.run(run));
        'again: for _ in 0..ATTEMPTS {
            let shape = run.shape(objects, &mut *run.known.lock().await).await?;
            let mut wanted: Vec<_> = shape.entries().filter(|(_, seq)| (span.from..=span.to).contains(seq)).collect();
            if span.newest_first {
                wanted.reverse();
            }
            wanted.truncate(span.limit);
            // As far as was read, nothing may be missing.
            let last = wanted.last().map(|(_, seq)| *seq).filter(|_| wanted.len() == span.limit);
            match (last, span.newest_first) {
                (Some(last), true) => shape.whole(&run.id, last, span.to)?,
                (Some(last), false) => shape.whole(&run.id, span.from, last)?,
                (None, _) => shape.whole(&run.id, span.from, span.to)?,
            }
            let mut records = Vec::with_capacity(wanted.len());
            let mut opened: Option<(u64, CommitObject)> = None;
            for (number, seq) in wanted {
                if opened.as_ref().is_none_or(|(open, _)| *open != number) {
                    // Folded since: then it is in a segment.
                    let Some(object) = run.object(objects, number).await? else { continue 'again };
                    opened = Some((number, object));
                }
                let entry = opened.as_ref().and_then(|(_, object)| object.entries.iter().find(|e| e.seq == seq));
                let what = || format!("entry {seq} of run {}", run.id);
                let entry = entry.ok_or_else(|| StoreError::corrupt(what(), "it is missing"))?;
                records.push(entry.record(span.packs));
            }
            return Ok(records);
        }
        Err(StoreError::Unavailable { detail: format!("run {} is folded faster than it can be read", run.id) })
    }
}

#[async_trait]
impl Fold for ObjectStore {
    async fn segments(&self, run: &RunId) -> Result<Vec<SegmentInfo>, StoreError> {
        let (objects, run) = (self.objects()?, self.run(run));
        let shape = run.shape(objects, &mut *run.known.lock().await).await?;
        Ok(shape.segments.into_iter().map(|(info, _)| info).collect())
    }

    async fn section(&self, run: &RunId, info: SegmentInfo, section: Section) -> Result<Bytes, StoreError> {
        let (objects, run) = (self.objects()?, self.run(run));
        let missing = || StoreError::NotFound { what: format!("segment {info} of run {}", run.id) };
        let base = match run.base(objects, &mut *run.known.lock().await).await {
            Err(StoreError::NotFound { .. }) => return Err(missing()),
            base => base?.0,
        };
        // A crash may have left one that a larger one stands for.
        let all = run.segments(objects, base).await?;
        let is_inside =
            |(other, _): &(SegmentInfo, u64)| *other != info && other.first <= info.first && info.last <= other.last;
        match all.iter().any(is_inside) {
            true => Err(missing()),
            false => segment::read(objects, &run.segment_name(base, info), (&run.id, base, info), section).await,
        }
    }

    async fn fold(&self, run: &RunId, segment: Segment) -> Result<(), StoreError> {
        let (objects, run) = (self.objects()?, self.run(run));
        let mut known = run.known.lock().await;
        let shape = run.shape(objects, &mut known).await?;
        let SegmentInfo { first, last } = segment.info;
        shape.whole(&run.id, first, last)?;
        let end = run.end(objects, &mut known).await?.end().ok_or_else(|| StoreError::no_run(&run.id))?;
        let conflict = || StoreError::Conflict { run: run.id.clone(), wanted: last, head: Some(end.head) };
        // What isn't inside it lies beside it.
        let apart = |info: &SegmentInfo| is_inside(segment.info, *info) || info.last < first || last < info.first;
        if last >= end.head.seq || first > last || !shape.segments.iter().all(|(info, _)| apart(info)) {
            return Err(conflict());
        }
        objects.delete_all(&shape.leftovers, Durability::Relaxed).await?;
        let name = run.segment_name(end.base, segment.info);
        let bytes = segment::encode(&run.id, end.base, &segment)?;
        if !objects.create(&name, bytes.clone(), Durability::Durable).await? {
            let old = objects.get(&name, Part::Range(0..0)).await?.ok_or_else(conflict)?;
            if !objects.replace(&name, bytes, &old.version, Durability::Durable).await? {
                return Err(conflict());
            }
        }
        // Another fold may have begun at the same time. Of two that overlap, the one that sees the other gives way.
        let now = run.segments(objects, end.base).await?;
        if !now.iter().all(|(info, _)| apart(info)) || !now.iter().any(|(info, _)| *info == segment.info) {
            objects.delete(&name, None, Durability::Relaxed).await?;
            return Err(conflict());
        }
        // Only now: what it stands for is there to stay.
        let covered = |seq: Seq| (first..=last).contains(&seq) || shape.is_folded(seq);
        let inner = shape.segments.iter().map(|(info, _)| *info);
        let inner = inner.filter(|info| *info != segment.info && is_inside(segment.info, *info));
        let mut old: Vec<String> = inner.map(|info| run.segment_name(end.base, info)).collect();
        let whole = |first: Seq, last: Seq| (first.0..=last.0).all(|seq| covered(Seq(seq)));
        let entries = shape.objects.iter().filter(|stretch| whole(stretch.first, stretch.last));
        old.extend(entries.map(|stretch| run.names.entry(stretch.number)));
        objects.delete_all(&old, Durability::Relaxed).await
    }
}

fn is_inside(outer: SegmentInfo, inner: SegmentInfo) -> bool {
    outer.first <= inner.first && inner.last <= outer.last
}

impl ObjectStore {
    /// Appends entries that follow each other, as one object.
    async fn commit(&self, commits: Vec<Commit>) -> Result<(), StoreError> {
        let (objects, run) = (self.objects()?, self.run(&commits[0].run));
        let mut known = run.known.lock().await;
        let mut found = match &known.end {
            // The creation tells whether it still holds.
            Some(end) if objects.is_remote() => Found::Run(end.clone()),
            _ => run.end(objects, &mut known).await?,
        };
        if objects.is_remote() && commits[0].check(found.head()).is_err() {
            found = run.end(objects, &mut known).await?;
        }
        commits[0].check(found.head())?;
        let (base, number, before) = match &found {
            Found::Run(end) => (end.base, end.next(), Some(end)),
            Found::Free(number) => (*number, *number, None),
        };
        let staged: Vec<_> = commits.iter().flat_map(|commit| &commit.staged).copied().collect();
        let owner = commits[0].owner;
        if objects.is_remote() {
            run.moves(objects, &mut known, before).await?;
        }
        self.take_packs(objects, &staged, owner).await?;
        let row = commits.iter().rev().find_map(|commit| commit.index.clone());
        let is_changed = row.is_some();
        let mut row = row.or_else(|| before.map(|end| end.row.clone())).expect("checked: entry 0 has an index row");
        let last = commits.last().expect("there is a first one");
        row.updated_at = last.at;
        let (wanted, first) = (commits[0].seq, commits[0].clone());
        let object = CommitObject::new(base, row.clone(), commits);
        // A folder that has the entry at all has it durably: a relaxed one is worth no second way.
        let is_created = objects.create(&run.names.entry(number), object.encode()?, Durability::Durable).await?;
        let stands = match is_created {
            true => self.stands(objects, &run, &mut known, number, before).await?,
            false => Some(false),
        };
        if stands != Some(true) {
            known.end = None;
        }
        match stands {
            Some(true) => {}
            None => {
                let detail = format!("entry {wanted} of run {} was folded while it was written", run.id);
                return Err(StoreError::Unavailable { detail });
            }
            Some(false) => {
                if is_created {
                    objects.delete(&run.names.entry(number), None, Durability::Relaxed).await?;
                }
                let head = run.end(objects, &mut known).await?.end().map(|end| end.head);
                first.check(head)?;
                return Err(StoreError::Conflict { run: run.id.clone(), wanted, head });
            }
        }
        let newest = object.entries.last().expect("there is a first one");
        if object.entries.len() > 1 {
            known.bursts.insert(number, base + u64::from(newest.seq.0));
        }
        known.end = Some(End { base, object: number, head: newest.head(), row: row.clone() });
        // Pins that don't end now run out.
        if let Err(error) = self.end_pins(objects, &staged, owner).await {
            tracing::warn!(run = %run.id, %error, "packs of a commit are still pinned");
        }
        // From here on it is committed, and what only helps can't make it fail.
        if let Some((mark, _)) = known.mark.take() {
            if row.status == RunStatus::InProgress {
                known.mark = Some((mark, newest.hash));
            } else if let Err(error) = run.rests(objects, mark, &row).await {
                tracing::warn!(run = %run.id, %error, "a run has no row");
            }
        }
        if let Err(error) = readable::show(objects, &run, &mut known, &object, is_changed).await {
            tracing::warn!(run = %run.id, %error, "the readable files of a run are behind its log");
        }
        Ok(())
    }

    /// Whether an object that was just created counts. It doesn't if the writer was slow: if the number had been used
    /// before, and its object was swept with a removed run. Then nothing is before it, because of a removed run the
    /// older objects go first. If a segment has the entry, it had been used before or was folded just now: `None`.
    async fn stands(
        &self,
        objects: &dyn Objects,
        run: &Run,
        known: &mut Known,
        number: u64,
        before: Option<&End>,
    ) -> Result<Option<bool>, StoreError> {
        let Some(before) = before else {
            known.end = None;
            let end = run.end(objects, known).await?.end();
            return Ok(Some(end.is_some_and(|end| end.base == number)));
        };
        // In this order: an object that is folded goes when its segment is there.
        let is_before = objects.exists(&run.names.entry(before.object)).await?;
        let segments = run.segments(objects, before.base).await?;
        let has = |number: u64| {
            let seq = number - before.base;
            segments.iter().any(|(info, _)| (u64::from(info.first.0)..=u64::from(info.last.0)).contains(&seq))
        };
        Ok(if has(number) { None } else { Some(is_before || has(number - 1)) })
    }
}
