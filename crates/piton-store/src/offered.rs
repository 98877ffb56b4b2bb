//! What stores offer by accessors, as calls on any store. A store that doesn't offer it answers `Unsupported`; what only
//! reads answers as if there were nothing.

use std::pin::Pin;

use bytes::Bytes;
use piton_types::{BlobId, Fence, Holder, PackId, RunId, Timestamp};

use crate::{
    Defect, Fold, Head, Lease, Leases, PackInfo, Section, Segment, SegmentInfo, Store, StoreError, Sweep, Swept,
    Totals, Upkeep,
};

type Answer<'f, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'f>>;

fn ready<'f, T: Send + 'f>(answer: Result<T, StoreError>) -> Answer<'f, T> {
    Box::pin(std::future::ready(answer))
}

fn missing(what: &'static str) -> StoreError {
    StoreError::Unsupported { store: "this store", what }
}

macro_rules! offered {
    ($by:ident: $trait:ident;
     $($(#[$doc:meta])* $name:ident($($argument:ident: $type:ty),*) -> $output:ty, or $missing:expr;)*) => {
        impl<'s> dyn Store + 's {$(
            $(#[$doc])*
            pub fn $name<'f>(&'f self $(, $argument: $type)*) -> Answer<'f, $output>
            where
                's: 'f,
            {
                match self.$by() {
                    Some(offered) => $trait::$name(offered $(, $argument)*),
                    None => ready($missing),
                }
            }
        )*}
    };
}

offered! { folding: Fold;
    /// See [`Fold::segments`].
    segments(run: &'f RunId) -> Vec<SegmentInfo>, or Ok(Vec::new());
    /// See [`Fold::section`].
    section(run: &'f RunId, segment: SegmentInfo, section: Section) -> Bytes,
        or Err(StoreError::NotFound { what: format!("segment {segment} of run {run}") });
    /// See [`Fold::fold`].
    fold(run: &'f RunId, segment: Segment) -> (), or Err(missing("fold a log"));
}

offered! { leases: Leases;
    /// See [`Leases::lease`].
    lease(run: &'f RunId) -> Option<Lease>, or Ok(None);
    /// See [`Leases::beat`].
    beat(run: &'f RunId, fence: Fence, holder: &'f Holder) -> u64, or Err(missing("keep leases"));
    /// See [`Leases::release`].
    release(run: &'f RunId, fence: Fence) -> (), or Ok(());
}

offered! { upkeep: Upkeep;
    /// See [`Upkeep::remove`].
    remove(run: &'f RunId, head: Head) -> (), or Err(missing("remove a run"));
    /// See [`Upkeep::packs`].
    packs(after: Option<PackId>, limit: usize) -> Vec<PackInfo>, or Ok(Vec::new());
    /// See [`Upkeep::pack_ids`].
    pack_ids(pack: PackId) -> Vec<BlobId>, or Err(missing("list the blobs of a pack"));
    /// See [`Upkeep::condemn`].
    condemn(packs: &'f [PackId], at: Timestamp) -> u64, or Err(missing("give space back"));
    /// See [`Upkeep::pardon`].
    pardon(packs: &'f [PackId]) -> (), or Err(missing("give space back"));
    /// See [`Upkeep::sweep`].
    sweep(sweep: Sweep) -> Swept, or Err(missing("give space back"));
    /// See [`Upkeep::note`].
    note(key: &'f str) -> Option<Bytes>, or Ok(None);
    /// See [`Upkeep::notes`].
    notes(prefix: &'f str) -> Vec<(String, Bytes)>, or Ok(Vec::new());
    /// See [`Upkeep::set_note`].
    set_note(key: &'f str, note: Option<Bytes>) -> (), or Err(missing("keep notes"));
    /// See [`Upkeep::run_ids`].
    run_ids() -> Vec<RunId>, or Err(missing("list runs that are damaged"));
    /// See [`Upkeep::totals`].
    totals() -> Totals, or Ok(Totals::default());
    /// See [`Upkeep::inspect`].
    inspect() -> Vec<Defect>, or Ok(Vec::new());
}
