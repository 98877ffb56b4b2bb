//! Giving back the space of removed runs.

use piton_store::{StoreError, Swept};
use piton_types::Durability;

use crate::names::numbers;
use crate::objects::Objects;
use crate::run::{Found, Run};
use crate::store::ObjectStore;

impl ObjectStore {
    /// Deletes what removed runs left, about so many bytes. Another sweeper may be at it too.
    pub(crate) async fn sweep_removed(&self, objects: &dyn Objects, bytes: u64) -> Result<Swept, StoreError> {
        let mut swept = Swept::default();
        for id in self.all_runs(objects).await? {
            let run = self.run(&id);
            let found = run.end(objects, &mut *run.known.lock().await).await;
            let (limit, is_free) = match found {
                Ok(Found::Run(end)) if end.base == 0 => continue,
                Ok(Found::Run(end)) => (end.base, false),
                // The object of the removal stays: it keeps the numbers before it from being used again.
                Ok(Found::Free(next)) => (next.saturating_sub(1), true),
                // Of a damaged run nothing is known.
                Err(StoreError::Corrupt { .. } | StoreError::TooNew { .. }) => continue,
                Err(error) => return Err(error),
            };
            let old = old_objects(objects, &run, limit, is_free).await?;
            for (name, size) in &old {
                if swept.bytes >= bytes {
                    swept.more = true;
                    return Ok(swept);
                }
                if objects.delete(name, None, Durability::Relaxed).await? {
                    swept.bytes += size;
                }
            }
            // That object goes with a sweep that finds nothing else: by then no slow writer is left.
            if old.is_empty() && is_free && limit > 0 {
                objects.delete(&run.names.entry(limit), None, Durability::Relaxed).await?;
            }
        }
        Ok(swept)
    }
}

/// What is left of the runs of this id before the number `limit`, with sizes. Segments come first, then the entries in
/// ascending order: a slow writer whose number is free again finds nothing before it (see `stands`).
async fn old_objects(
    objects: &dyn Objects,
    run: &Run,
    limit: u64,
    is_free: bool,
) -> Result<Vec<(String, u64)>, StoreError> {
    let mut old = Vec::new();
    let folder = run.names.at("segments");
    for listed in objects.list(&folder, None, usize::MAX).await? {
        let numbers = listed.name.strip_suffix(".segment").and_then(numbers);
        if numbers.is_some_and(|(first, _)| first < limit) {
            old.push((format!("{folder}/{}", listed.name), listed.size.unwrap_or(0)));
        }
    }
    for (number, size) in run.numbers(objects).await?.into_iter().filter(|(number, _)| *number < limit) {
        old.push((run.names.entry(number), size));
    }
    if is_free {
        for name in ["state.json", "history.jsonl", "lease.json"].map(|name| run.names.at(name)) {
            if objects.exists(&name).await? {
                old.push((name, 0));
            }
        }
    }
    Ok(old)
}
