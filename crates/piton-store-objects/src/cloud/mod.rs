//! Objects in S3, Google Cloud Storage or Azure, by the conditional writes that these have.
//!
//! An object is created under the condition that there is none, and replaced under the condition that it is the one that
//! was read. What has a condition is sent once: an answer that is lost is an error, and the caller looks what became of
//! it. The protocols have no conditional deletion, so an object that is deleted *if unchanged* becomes one without bytes,
//! which counts as none and is taken over by the next creation of that name.

mod connect;
mod driver;
mod errors;
mod place;
pub(crate) mod tls;

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::{StreamExt as _, TryStreamExt as _};
use object_store::list::{PaginatedListOptions, PaginatedListStore};
use object_store::path::Path;
use object_store::{
    Error, GetOptions, GetRange, ObjectMeta, ObjectStoreExt as _, PutMode, PutOptions, PutPayload, UpdateVersion,
};
use piton_store::StoreError;
use piton_types::Durability;

pub use driver::CloudDriver;
pub use place::{CloudKind, CloudPlace, CloudSettings};

use crate::objects::{Listed, Object, Objects, Part, Version, check_name};

/// What a client can do.
pub(crate) trait Cloud: object_store::ObjectStore + PaginatedListStore {}

impl<T: object_store::ObjectStore + PaginatedListStore> Cloud for T {}

/// Objects in a cloud.
pub struct CloudObjects {
    place: CloudPlace,
    /// Sends again what failed.
    patient: Arc<dyn Cloud>,
    /// Sends everything once.
    once: Arc<dyn Cloud>,
}

fn listed(name: String, meta: &ObjectMeta) -> Listed {
    let version = meta.e_tag.as_ref().or(meta.version.as_ref()).map(|version| Version(version.clone()));
    Listed { name, size: Some(meta.size), version }
}

impl std::fmt::Debug for CloudObjects {
    // The clients would tell the name of the key.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("CloudObjects").field(&self.place).finish()
    }
}

impl CloudObjects {
    /// The objects at a place. Nothing is sent yet.
    pub fn new(place: CloudPlace) -> Result<Self, StoreError> {
        let [patient, once] = place.clients()?;
        Ok(Self { place, patient, once })
    }

    /// The key of an object, or with a slash at its end what the keys of a folder begin with.
    fn key(&self, name: &str) -> String {
        match self.place.prefix.as_str() {
            "" => name.to_owned(),
            prefix => format!("{prefix}/{name}"),
        }
    }

    fn path(&self, name: &str) -> Result<Path, StoreError> {
        check_name(name)?;
        Path::parse(self.key(name)).map_err(|error| self.failed(&error.into()))
    }

    fn failed(&self, error: &Error) -> StoreError {
        errors::store_error(error, &self.place.url(), &self.place.secrets)
    }

    /// Only one of the two is compared, and it is the one that is never given twice.
    fn version(&self, e_tag: Option<&String>, version: Option<&String>) -> Version {
        let wanted = if self.place.kind == CloudKind::Google { version } else { e_tag };
        Version(wanted.cloned().unwrap_or_default())
    }

    fn condition(&self, version: &Version) -> PutMode {
        let version = Some(version.0.clone());
        PutMode::Update(match self.place.kind {
            CloudKind::Google => UpdateVersion { e_tag: None, version },
            CloudKind::S3 | CloudKind::Azure => UpdateVersion { e_tag: version, version: None },
        })
    }

    async fn meta(&self, path: &Path) -> Result<Option<ObjectMeta>, StoreError> {
        match self.patient.head(path).await {
            Ok(meta) => Ok(Some(meta)),
            Err(Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(self.failed(&error)),
        }
    }

    /// Writes under a condition; `false` if it doesn't hold.
    async fn put(&self, path: &Path, content: Bytes, mode: PutMode) -> Result<bool, StoreError> {
        let is_creation = mode == PutMode::Create;
        match self.once.put_opts(path, PutPayload::from(content), PutOptions::from(mode)).await {
            Ok(_) => Ok(true),
            Err(Error::AlreadyExists { .. } | Error::Precondition { .. } | Error::NotModified { .. }) => Ok(false),
            // Of a creation it says that the bucket isn't there.
            Err(Error::NotFound { .. }) if !is_creation => Ok(false),
            Err(error) => Err(self.failed(&error)),
        }
    }
}

#[async_trait]
impl Objects for CloudObjects {
    async fn create(&self, name: &str, content: Bytes, _: Durability) -> Result<bool, StoreError> {
        let path = self.path(name)?;
        if content.is_empty() {
            let what = format!("object {name:?}");
            return Err(StoreError::Invalid { what, detail: "one without bytes counts as none".to_owned() });
        }
        loop {
            if self.put(&path, content.clone(), PutMode::Create).await? {
                return Ok(true);
            }
            match self.meta(&path).await? {
                Some(meta) if meta.size > 0 => return Ok(false),
                Some(meta) => {
                    let deleted = self.version(meta.e_tag.as_ref(), meta.version.as_ref());
                    return self.put(&path, content, self.condition(&deleted)).await;
                }
                None => {}
            }
        }
    }

    async fn get(&self, name: &str, part: Part) -> Result<Option<Object>, StoreError> {
        let path = self.path(name)?;
        let range = match &part {
            Part::Whole => None,
            Part::Range(range) if range.is_empty() => return self.head(&path).await,
            Part::Range(range) => Some(GetRange::Bounded(range.clone())),
            Part::Last(0) => return self.head(&path).await,
            Part::Last(count) => Some(GetRange::Suffix(*count)),
        };
        let got = match self.patient.get_opts(&path, GetOptions { range, ..GetOptions::default() }).await {
            Ok(got) => got,
            Err(Error::NotFound { .. }) => return Ok(None),
            Err(error) if part == Part::Whole || !matches!(error, Error::Generic { .. }) => {
                return Err(self.failed(&error));
            }
            Err(error) => {
                // There is no way to ask for what lies behind the end, as far as it is there.
                let Some(object) = self.head(&path).await? else { return Ok(None) };
                return match part.within(object.size).is_empty() {
                    true => Ok(Some(object)),
                    false => Err(self.failed(&error)),
                };
            }
        };
        let version = self.version(got.meta.e_tag.as_ref(), got.meta.version.as_ref());
        let size = got.meta.size;
        let bytes = got.bytes().await.map_err(|error| self.failed(&error))?;
        Ok((size > 0).then_some(Object { bytes, version, size }))
    }

    async fn exists(&self, name: &str) -> Result<bool, StoreError> {
        Ok(self.head(&self.path(name)?).await?.is_some())
    }

    async fn list(&self, folder: &str, after: Option<&str>, limit: usize) -> Result<Vec<Listed>, StoreError> {
        let prefix = match folder {
            "" => self.key(""),
            folder => self.key(&format!("{folder}/")),
        };
        let offset = after.map(|after| format!("{prefix}{after}"));
        let (mut all, mut page_token) = (Vec::new(), None);
        loop {
            let delimiter = Some("/".into());
            let options = PaginatedListOptions { offset: offset.clone(), delimiter, page_token, ..Default::default() };
            let page = self.patient.list_paginated(Some(&prefix), options).await;
            let page = page.map_err(|error| self.failed(&error))?;
            let name =
                |path: &Path| path.as_ref().strip_prefix(&prefix).map(|name| name.trim_end_matches('/').to_owned());
            let found = page.result.objects.iter().filter(|meta| meta.size > 0);
            let objects = found.filter_map(|meta| Some(listed(name(&meta.location)?, meta)));
            let folders = page.result.common_prefixes.iter();
            let folders = folders.filter_map(|path| Some(Listed { name: name(path)?, size: None, version: None }));
            all.extend(objects.chain(folders).filter(|l| !l.name.is_empty() && after.is_none_or(|a| *l.name > *a)));
            page_token = page.page_token;
            // Folders and objects are sorted by different endings, but no list that is cut has both.
            if page_token.is_none() || all.len() >= limit {
                break;
            }
        }
        all.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        all.truncate(limit);
        Ok(all)
    }

    async fn replace(&self, name: &str, new: Bytes, version: &Version, _: Durability) -> Result<bool, StoreError> {
        let path = self.path(name)?;
        self.put(&path, new, self.condition(version)).await
    }

    async fn delete(&self, name: &str, version: Option<&Version>, _: Durability) -> Result<bool, StoreError> {
        let path = self.path(name)?;
        match version {
            Some(version) => self.put(&path, Bytes::new(), self.condition(version)).await,
            None => match self.patient.delete(&path).await {
                Ok(()) => Ok(true),
                Err(Error::NotFound { .. }) => Ok(false),
                Err(error) => Err(self.failed(&error)),
            },
        }
    }

    async fn delete_all(&self, names: &[String], _: Durability) -> Result<(), StoreError> {
        let paths: Vec<Path> = names.iter().map(|name| self.path(name)).collect::<Result<_, _>>()?;
        let mut deleted = self.patient.delete_stream(futures_util::stream::iter(paths.into_iter().map(Ok)).boxed());
        while let Some(outcome) = deleted.next().await {
            match outcome {
                Ok(_) | Err(Error::NotFound { .. }) => {}
                Err(error) => return Err(self.failed(&error)),
            }
        }
        Ok(())
    }

    async fn bytes(&self) -> Result<u64, StoreError> {
        let prefix = (!self.place.prefix.is_empty()).then(|| Path::parse(&self.place.prefix));
        let prefix = prefix.transpose().map_err(|error| self.failed(&error.into()))?;
        let sizes = self.patient.list(prefix.as_ref()).map_ok(|meta| meta.size);
        sizes.try_fold(0, async |sum, size| Ok(sum + size)).await.map_err(|error| self.failed(&error))
    }

    fn is_persistent(&self) -> bool {
        true
    }

    fn is_remote(&self) -> bool {
        true
    }

    fn url(&self) -> String {
        self.place.url()
    }
}

impl CloudObjects {
    /// The object without its bytes.
    async fn head(&self, path: &Path) -> Result<Option<Object>, StoreError> {
        let meta = self.meta(path).await?.filter(|meta| meta.size > 0);
        Ok(meta.map(|meta| Object {
            bytes: Bytes::new(),
            version: self.version(meta.e_tag.as_ref(), meta.version.as_ref()),
            size: meta.size,
        }))
    }
}
