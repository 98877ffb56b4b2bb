//! What decorators have in common: calls that pass to the store below as they are.

/// Passes the named calls of a store's traits on to `self.inner`, which is a store.
///
/// It stands inside an `impl` that [`async_trait`](crate::async_trait) marks. The future of the store below is handed
/// on itself, so a call that a decorator doesn't care for costs no allocation of its own.
///
/// ```
/// use std::sync::Arc;
/// use piton_store::{Blobs, Store, async_trait, forward};
///
/// struct Outer { inner: Arc<dyn Store> }
///
/// #[async_trait]
/// impl Blobs for Outer {
///     forward! { stage pin locate pack pack_part }
/// }
/// ```
#[macro_export]
macro_rules! forward {
    (@call $name:ident [$($life:lifetime)*] ($($argument:ident: $type:ty),*) -> $output:ty) => {
        fn $name<'s $(, $life)*, 'f>(
            &'s self
            $(, $argument: $type)*
        ) -> ::std::pin::Pin<
            ::std::boxed::Box<
                dyn ::std::future::Future<Output = ::std::result::Result<$output, $crate::StoreError>>
                    + ::std::marker::Send
                    + 'f,
            >,
        >
        where
            's: 'f,
            $($life: 'f,)*
            Self: 'f,
        {
            self.inner.$name($($argument),*)
        }
    };

    (@ append) => { $crate::forward!(@call append [] (commits: Vec<$crate::Commit>) -> ()); };
    (@ head) => { $crate::forward!(@call head ['a] (run: &'a $crate::types::RunId) -> Option<$crate::Head>); };
    (@ read) => {
        $crate::forward!(@call read ['a] (run: &'a $crate::types::RunId, span: $crate::Span) -> Vec<$crate::Record>);
    };
    (@ segments) => {
        $crate::forward!(@call segments ['a] (run: &'a $crate::types::RunId) -> Vec<$crate::SegmentInfo>);
    };
    (@ section) => {
        $crate::forward!(@call section ['a] (
            run: &'a $crate::types::RunId, segment: $crate::SegmentInfo, section: $crate::Section
        ) -> $crate::Bytes);
    };
    (@ fold) => {
        $crate::forward!(@call fold ['a] (run: &'a $crate::types::RunId, segment: $crate::Segment) -> ());
    };

    (@ stage) => {
        $crate::forward!(@call stage ['a] (
            id: $crate::PackId, pack: $crate::Bytes, ids: &'a [$crate::types::BlobId], pin: $crate::Pin
        ) -> ());
    };
    (@ pin) => { $crate::forward!(@call pin ['a] (packs: &'a [$crate::PackId], pin: $crate::Pin) -> ()); };
    (@ locate) => {
        $crate::forward!(@call locate ['a] (ids: &'a [$crate::types::BlobId]) -> Vec<Option<$crate::PackId>>);
    };
    (@ pack) => { $crate::forward!(@call pack [] (pack: $crate::PackId) -> $crate::Bytes); };
    (@ pack_part) => {
        $crate::forward!(@call pack_part [] (
            pack: $crate::PackId, from: u64, length: usize
        ) -> Option<$crate::Bytes>);
    };

    (@ remove) => { $crate::forward!(@call remove ['a] (run: &'a $crate::types::RunId, head: $crate::Head) -> ()); };
    (@ packs) => {
        $crate::forward!(@call packs [] (after: Option<$crate::PackId>, limit: usize) -> Vec<$crate::PackInfo>);
    };
    (@ pack_ids) => { $crate::forward!(@call pack_ids [] (pack: $crate::PackId) -> Vec<$crate::types::BlobId>); };
    (@ condemn) => {
        $crate::forward!(@call condemn ['a] (packs: &'a [$crate::PackId], at: $crate::types::Timestamp) -> u64);
    };
    (@ pardon) => { $crate::forward!(@call pardon ['a] (packs: &'a [$crate::PackId]) -> ()); };
    (@ notes) => { $crate::forward!(@call notes ['a] (prefix: &'a str) -> Vec<(String, $crate::Bytes)>); };
    (@ sweep) => { $crate::forward!(@call sweep [] (sweep: $crate::Sweep) -> $crate::Swept); };
    (@ note) => { $crate::forward!(@call note ['a] (key: &'a str) -> Option<$crate::Bytes>); };
    (@ set_note) => { $crate::forward!(@call set_note ['a] (key: &'a str, note: Option<$crate::Bytes>) -> ()); };
    (@ inspect) => { $crate::forward!(@call inspect [] () -> Vec<$crate::Defect>); };
    (@ run_ids) => { $crate::forward!(@call run_ids [] () -> Vec<$crate::types::RunId>); };
    (@ totals) => { $crate::forward!(@call totals [] () -> $crate::Totals); };

    (@ summary) => {
        $crate::forward!(@call summary ['a] (run: &'a $crate::types::RunId) -> Option<$crate::types::RunSummary>);
    };
    (@ list) => { $crate::forward!(@call list [] (query: $crate::RunQuery) -> Vec<$crate::types::RunSummary>); };
    (@ lease) => { $crate::forward!(@call lease ['a] (run: &'a $crate::types::RunId) -> Option<$crate::Lease>); };
    (@ beat) => {
        $crate::forward!(@call beat ['a 'b] (
            run: &'a $crate::types::RunId, fence: $crate::types::Fence, holder: &'b $crate::types::Holder
        ) -> u64);
    };
    (@ release) => {
        $crate::forward!(@call release ['a] (run: &'a $crate::types::RunId, fence: $crate::types::Fence) -> ());
    };

    // A decorator offers what the store below offers, by its own implementation.
    (@ folding) => {
        fn folding(&self) -> Option<&dyn $crate::Fold> {
            self.inner.folding().map(|_| self as &dyn $crate::Fold)
        }
    };
    (@ leases) => {
        fn leases(&self) -> Option<&dyn $crate::Leases> {
            self.inner.leases().map(|_| self as &dyn $crate::Leases)
        }
    };
    (@ upkeep) => {
        fn upkeep(&self) -> Option<&dyn $crate::Upkeep> {
            self.inner.upkeep().map(|_| self as &dyn $crate::Upkeep)
        }
    };
    // These have nothing in them that a decorator changes.
    (@ changes) => {
        fn changes(&self) -> Option<&dyn $crate::Changes> {
            self.inner.changes()
        }
    };
    (@ queue) => {
        fn queue(&self) -> Option<&dyn $crate::Queue> {
            self.inner.queue()
        }
    };

    (@ capabilities) => {
        fn capabilities(&self) -> $crate::Capabilities {
            self.inner.capabilities()
        }
    };
    (@ hashing) => {
        fn hashing(&self) -> &$crate::Hashing {
            self.inner.hashing()
        }
    };
    (@ redaction) => {
        fn redaction(&self) -> Option<&::std::sync::Arc<$crate::Redaction>> {
            self.inner.redaction()
        }
    };
    (@ syncs) => {
        fn syncs(&self) -> u64 {
            self.inner.syncs()
        }
    };
    (@ url) => {
        fn url(&self) -> String {
            self.inner.url()
        }
    };
    (@ usage) => { $crate::forward!(@call usage [] () -> $crate::Usage); };
    (@ close) => { $crate::forward!(@call close [] () -> ()); };

    ($($name:ident)+) => { $($crate::forward!(@ $name);)+ };
}
