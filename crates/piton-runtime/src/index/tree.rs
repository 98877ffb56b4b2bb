//! A sorted map whose pages lie in entries of the log.
//!
//! A page is never changed. An update writes the pages between the root and what changed anew, into the entry that it is
//! made for, and refers to all others where they are: by the number of their entry, so that neither collecting nor
//! copying a store has to know of them.

use std::collections::{BTreeMap, HashMap};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use piton_log::RunLog;
use piton_store::StoreError;
use piton_types::{Seq, Value};
use serde::{Deserialize, Serialize};

use crate::fact::Fact;

/// How many keys a page has at most.
const FULL: usize = 64;

/// How many pages stay in memory.
const KEPT: usize = 4096;

/// Where a page is: the entry, and the place among its pages. Entry 0, which never has any, stands for the entry that
/// the reference itself is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct PageRef(pub(crate) Seq, pub(crate) u32);

impl PageRef {
    /// The page, for a reference that was found in entry `seq`.
    pub(crate) const fn found_in(self, seq: Seq) -> Self {
        if self.0.0 == 0 { Self(seq, self.1) } else { self }
    }
}

/// Some of the keys, in order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Page {
    /// Keys with their values.
    Leaf(Vec<(String, Value)>),
    /// Pages, each with the first of its keys.
    Inner(Vec<(String, PageRef)>),
}

/// What is to become of keys: another value, or none.
pub(crate) type Changes = BTreeMap<String, Option<Value>>;

/// What takes the place of a page: pages with their first keys.
type Changed<'a> = Pin<Box<dyn Future<Output = Result<Vec<(String, PageRef)>, StoreError>> + Send + 'a>>;

/// The pages that a log has, read when they are asked for.
pub(crate) struct Pages {
    log: RunLog,
    read: Mutex<HashMap<PageRef, Arc<Page>>>,
}

impl std::fmt::Debug for Pages {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pages").field("log", &self.log).finish_non_exhaustive()
    }
}

impl Pages {
    pub(crate) fn new(log: RunLog) -> Self {
        Self { log, read: Mutex::default() }
    }

    pub(crate) fn log(&self) -> &RunLog {
        &self.log
    }

    fn read(&self) -> MutexGuard<'_, HashMap<PageRef, Arc<Page>>> {
        // What is remembered is whole, whichever thread panicked.
        self.read.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Remembers the pages of entry `seq`.
    pub(crate) fn remember(&self, seq: Seq, pages: &[Page]) {
        let mut read = self.read();
        if read.len() + pages.len() > KEPT {
            read.clear();
        }
        read.extend((0..).zip(pages).map(|(place, page)| (PageRef(seq, place), Arc::new(page.clone()))));
    }

    async fn page(&self, at: PageRef) -> Result<Arc<Page>, StoreError> {
        let known = self.read().get(&at).cloned();
        if let Some(page) = known {
            return Ok(page);
        }
        let entry = self.log.entry(at.0).await?;
        if let Fact::Indexed(record) = Fact::read(&self.log, &entry).await? {
            self.remember(at.0, &record.pages);
            if let Some(page) = record.pages.get(at.1 as usize) {
                return Ok(Arc::new(page.clone()));
            }
        }
        let what = format!("the index of run {}", self.log.run());
        Err(StoreError::corrupt(what, format!("entry {} doesn't have page {}", at.0, at.1)))
    }

    /// The value of a key.
    pub(crate) async fn get(&self, root: Option<PageRef>, key: &str) -> Result<Option<Value>, StoreError> {
        let Some(mut at) = root else { return Ok(None) };
        loop {
            match &*self.page(at).await? {
                Page::Leaf(keys) => {
                    let place = keys.binary_search_by(|(known, _)| known.as_str().cmp(key));
                    return Ok(place.ok().map(|place| keys[place].1.clone()));
                }
                Page::Inner(pages) => {
                    let behind = pages.partition_point(|(first, _)| first.as_str() <= key);
                    let Some(place) = behind.checked_sub(1) else { return Ok(None) };
                    at = pages[place].1.found_in(at.0);
                }
            }
        }
    }

    /// The keys that begin with `prefix`, in order, with their values.
    pub(crate) async fn scan(&self, root: Option<PageRef>, prefix: &str) -> Result<Vec<(String, Value)>, StoreError> {
        let mut found = Vec::new();
        let mut open: Vec<PageRef> = root.into_iter().collect();
        while let Some(at) = open.pop() {
            match &*self.page(at).await? {
                Page::Leaf(keys) => {
                    found.extend(keys.iter().filter(|(key, _)| key.starts_with(prefix)).cloned());
                }
                Page::Inner(pages) => {
                    // A page may have such keys if it begins with one, or is the last that begins before them.
                    let begin = pages.partition_point(|(first, _)| first.as_str() < prefix).saturating_sub(1);
                    let may = |(first, _): &&(String, PageRef)| first.as_str() < prefix || first.starts_with(prefix);
                    let wanted: Vec<_> = pages[begin..].iter().take_while(may).collect();
                    open.extend(wanted.into_iter().rev().map(|(_, page)| page.found_in(at.0)));
                }
            }
        }
        Ok(found)
    }

    /// Makes a map with these changes. The new pages are for the entry that is written next.
    pub(crate) async fn update(
        &self,
        root: Option<PageRef>,
        changes: Changes,
    ) -> Result<(Option<PageRef>, Vec<Page>), StoreError> {
        let changes: Vec<_> = changes.into_iter().collect();
        let mut new = Vec::new();
        let mut level = match root {
            Some(root) => self.change(root, &changes, &mut new).await?,
            None => cut(
                changes.into_iter().filter_map(|(key, value)| Some((key, value?))).collect(),
                true,
                &mut new,
                Page::Leaf,
            ),
        };
        while level.len() > 1 {
            level = cut(level, true, &mut new, Page::Inner);
        }
        Ok((level.pop().map(|(_, root)| root), new))
    }

    /// Makes the changes below a page, and gives what takes its place.
    fn change<'a>(
        &'a self,
        at: PageRef,
        changes: &'a [(String, Option<Value>)],
        new: &'a mut Vec<Page>,
    ) -> Changed<'a> {
        Box::pin(async move {
            match &*self.page(at).await? {
                Page::Leaf(keys) => {
                    let grows = keys.last().is_none_or(|(last, _)| changes.first().is_some_and(|(key, _)| key > last));
                    let mut merged: BTreeMap<_, _> = keys.iter().cloned().collect();
                    for (key, value) in changes {
                        match value {
                            Some(value) => drop(merged.insert(key.clone(), value.clone())),
                            None => drop(merged.remove(key)),
                        }
                    }
                    Ok(cut(merged.into_iter().collect(), grows, new, Page::Leaf))
                }
                Page::Inner(pages) => {
                    let mut level = Vec::with_capacity(pages.len() + 1);
                    let mut rest = changes;
                    for (place, (first, page)) in pages.iter().enumerate() {
                        // What comes before the first page goes into that one.
                        let end = pages
                            .get(place + 1)
                            .map_or(rest.len(), |(next, _)| rest.partition_point(|(key, _)| key < next));
                        let (own_changes, later) = rest.split_at(end);
                        rest = later;
                        let page = page.found_in(at.0);
                        match own_changes.is_empty() {
                            true => level.push((first.clone(), page)),
                            false => level.extend(self.change(page, own_changes, &mut *new).await?),
                        }
                    }
                    let grows = level.len() > pages.len()
                        && pages.last().is_some_and(|(last, _)| changes.first().is_some_and(|(key, _)| key >= last));
                    Ok(cut(level, grows, new, Page::Inner))
                }
            }
        })
    }
}

/// Makes pages of keys that stand in order: full ones where keys are added behind the last, as they are if names are
/// counted up; else equal ones, which have room.
fn cut<T: Clone>(
    keys: Vec<(String, T)>,
    grows: bool,
    new: &mut Vec<Page>,
    page: impl Fn(Vec<(String, T)>) -> Page,
) -> Vec<(String, PageRef)> {
    let size = if grows { FULL } else { keys.len().div_ceil(keys.len().div_ceil(FULL).max(1)).max(1) };
    let mut made = Vec::with_capacity(keys.len().div_ceil(size));
    for keys in keys.chunks(size) {
        let place = u32::try_from(new.len()).expect("far fewer pages");
        made.push((keys[0].0.clone(), PageRef(Seq(0), place)));
        new.push(page(keys.to_vec()));
    }
    made
}
