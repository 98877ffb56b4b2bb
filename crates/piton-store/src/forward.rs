//! What decorators have in common: calls that pass to the store below as they are.

/// Passes the named calls of a store's traits on to `self.inner`, which is a store.
///
/// It stands inside an `impl` that [`async_trait`](crate::async_trait) marks. The future of the store below is handed
/// on itself, so a call that a decorator doesn't care for costs no allocation of its own.
///
/// With `via METHOD:` before the names each call goes through a method of the decorator, `async fn METHOD<T>(&self, name: &'static str,
/// call: impl Future<Output = Result<T, StoreError>> + Send) -> Result<T, StoreError>`.
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
    (@call $via:tt $name:ident [$($life:lifetime)*] ($($argument:ident: $type:ty),*) -> $output:ty) => {
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
            $crate::forward!(@pass $via self $name self.inner.$name($($argument),*))
        }
    };
    (@pass () $self:ident $name:ident $call:expr) => { $call };
    (@pass ($via:ident) $self:ident $name:ident $call:expr) => {
        ::std::boxed::Box::pin($self.$via(stringify!($name), $call))
    };

    (@$via:tt append) => { $crate::forward!(@call $via append [] (commits: Vec<$crate::Commit>) -> ()); };
    (@$via:tt head) => { $crate::forward!(@call $via head ['a] (run: &'a $crate::types::RunId) -> Option<$crate::Head>); };
    (@$via:tt read) => {
        $crate::forward!(@call $via read ['a] (run: &'a $crate::types::RunId, span: $crate::Span) -> Vec<$crate::Record>);
    };
    (@$via:tt segments) => {
        $crate::forward!(@call $via segments ['a] (run: &'a $crate::types::RunId) -> Vec<$crate::SegmentInfo>);
    };
    (@$via:tt section) => {
        $crate::forward!(@call $via section ['a] (
            run: &'a $crate::types::RunId, segment: $crate::SegmentInfo, section: $crate::Section
        ) -> $crate::Bytes);
    };
    (@$via:tt fold) => {
        $crate::forward!(@call $via fold ['a] (run: &'a $crate::types::RunId, segment: $crate::Segment) -> ());
    };

    (@$via:tt stage) => {
        $crate::forward!(@call $via stage ['a] (
            id: $crate::PackId, pack: $crate::Bytes, ids: &'a [$crate::types::BlobId], pin: $crate::Pin
        ) -> ());
    };
    (@$via:tt pin) => { $crate::forward!(@call $via pin ['a] (packs: &'a [$crate::PackId], pin: $crate::Pin) -> ()); };
    (@$via:tt locate) => {
        $crate::forward!(@call $via locate ['a] (ids: &'a [$crate::types::BlobId]) -> Vec<Option<$crate::PackId>>);
    };
    (@$via:tt pack) => { $crate::forward!(@call $via pack [] (pack: $crate::PackId) -> $crate::Bytes); };
    (@$via:tt pack_part) => {
        $crate::forward!(@call $via pack_part [] (
            pack: $crate::PackId, from: u64, length: usize
        ) -> Option<$crate::Bytes>);
    };

    (@$via:tt remove) => { $crate::forward!(@call $via remove ['a] (run: &'a $crate::types::RunId, head: $crate::Head) -> ()); };
    (@$via:tt packs) => {
        $crate::forward!(@call $via packs [] (after: Option<$crate::PackId>, limit: usize) -> Vec<$crate::PackInfo>);
    };
    (@$via:tt pack_ids) => { $crate::forward!(@call $via pack_ids [] (pack: $crate::PackId) -> Vec<$crate::types::BlobId>); };
    (@$via:tt condemn) => {
        $crate::forward!(@call $via condemn ['a] (packs: &'a [$crate::PackId], at: $crate::types::Timestamp) -> u64);
    };
    (@$via:tt pardon) => { $crate::forward!(@call $via pardon ['a] (packs: &'a [$crate::PackId]) -> ()); };
    (@$via:tt notes) => { $crate::forward!(@call $via notes ['a] (prefix: &'a str) -> Vec<(String, $crate::Bytes)>); };
    (@$via:tt sweep) => { $crate::forward!(@call $via sweep [] (sweep: $crate::Sweep) -> $crate::Swept); };
    (@$via:tt note) => { $crate::forward!(@call $via note ['a] (key: &'a str) -> Option<$crate::Bytes>); };
    (@$via:tt set_note) => { $crate::forward!(@call $via set_note ['a] (key: &'a str, note: Option<$crate::Bytes>) -> ()); };
    (@$via:tt inspect) => { $crate::forward!(@call $via inspect [] () -> Vec<$crate::Defect>); };
    (@$via:tt run_ids) => { $crate::forward!(@call $via run_ids [] () -> Vec<$crate::types::RunId>); };
    (@$via:tt totals) => { $crate::forward!(@call $via totals [] () -> $crate::Totals); };

    (@$via:tt summary) => {
        $crate::forward!(@call $via summary ['a] (run: &'a $crate::types::RunId) -> Option<$crate::types::RunSummary>);
    };
    (@$via:tt list) => { $crate::forward!(@call $via list [] (query: $crate::RunQuery) -> Vec<$crate::types::RunSummary>); };
    (@$via:tt lease) => { $crate::forward!(@call $via lease ['a] (run: &'a $crate::types::RunId) -> Option<$crate::Lease>); };
    (@$via:tt beat) => {
        $crate::forward!(@call $via beat ['a 'b] (
            run: &'a $crate::types::RunId, fence: $crate::types::Fence, holder: &'b $crate::types::Holder
        ) -> u64);
    };
    (@$via:tt release) => {
        $crate::forward!(@call $via release ['a] (run: &'a $crate::types::RunId, fence: $crate::types::Fence) -> ());
    };

    // A decorator offers what the store below offers, by its own implementation.
    (@$via:tt folding) => {
        fn folding(&self) -> Option<&dyn $crate::Fold> {
            self.inner.folding().map(|_| self as &dyn $crate::Fold)
        }
    };
    (@$via:tt leases) => {
        fn leases(&self) -> Option<&dyn $crate::Leases> {
            self.inner.leases().map(|_| self as &dyn $crate::Leases)
        }
    };
    (@$via:tt upkeep) => {
        fn upkeep(&self) -> Option<&dyn $crate::Upkeep> {
            self.inner.upkeep().map(|_| self as &dyn $crate::Upkeep)
        }
    };
    // These have nothing in them that a decorator changes.
    (@$via:tt changes) => {
        fn changes(&self) -> Option<&dyn $crate::Changes> {
            self.inner.changes()
        }
    };
    (@$via:tt queue) => {
        fn queue(&self) -> Option<&dyn $crate::Queue> {
            self.inner.queue()
        }
    };

    (@$via:tt capabilities) => {
        fn capabilities(&self) -> $crate::Capabilities {
            self.inner.capabilities()
        }
    };
    (@$via:tt hashing) => {
        fn hashing(&self) -> &$crate::Hashing {
            self.inner.hashing()
        }
    };
    (@$via:tt redaction) => {
        fn redaction(&self) -> Option<&::std::sync::Arc<$crate::Redaction>> {
            self.inner.redaction()
        }
    };
    (@$via:tt syncs) => {
        fn syncs(&self) -> u64 {
            self.inner.syncs()
        }
    };
    (@$via:tt url) => {
        fn url(&self) -> String {
            self.inner.url()
        }
    };
    (@$via:tt usage) => { $crate::forward!(@call $via usage [] () -> $crate::Usage); };
    (@$via:tt close) => { $crate::forward!(@call $via close [] () -> ()); };

    (via $via:ident: $($name:ident)+) => { $($crate::forward!(@($via) $name);)+ };
    ($($name:ident)+) => { $($crate::forward!(@() $name);)+ };
}
