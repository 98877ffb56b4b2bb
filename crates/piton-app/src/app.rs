//! What every verb works with: the folder, the clock, and the way to the store.

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use piton_runtime::SystemClock;
use piton_runtime::SystemRandom;
use piton_runtime::recovery::SystemEnvironment;
use piton_store::{
    Call, EncryptedStore, Key, MeteredStore, Metrics, RedactedStore, Redaction, Registry, Store, StoreError,
};
use piton_store_objects::{FolderDriver, MemoryDriver};
use piton_store_sqlite::SqliteDriver;
use piton_types::{Clock as _, Timestamp};

use crate::documents::outside::no_secrets;
use crate::failure::Failure;
use crate::held::Held;
use crate::names::{NamedStore, Names};
use crate::place::keys::KeySources;
use crate::place::{Found, Origin, Place, Residence, Surroundings};
use crate::shell::{Level, Shell};
use crate::words::{self, typed};

/// How long nothing is said of long work, and how long between two words.
const PATIENCE: Duration = Duration::from_millis(500);

/// How stores are written.
#[cfg(feature = "postgres")]
const WRITTEN: &str = "sqlite:/path/to/store.db, file:/path/to/folder or postgres://USER@HOST/DATABASE";
#[cfg(not(feature = "postgres"))]
const WRITTEN: &str = "sqlite:/path/to/store.db or file:/path/to/folder";

/// What is said of a key that isn't needed.
const UNUSED_KEY: &str =
    "this store isn't encrypted, and the key isn't used; `piton init --store URL --encrypt` makes one that is";

/// What a verb does with a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// It only looks: nothing is made, finished, repaired or written, beside the store neither.
    Look,
    /// It may change what is there.
    Change,
    /// It makes the store if there is none.
    Create,
}

/// A folder with its store, and what the shell gave to work with it.
pub struct App {
    /// All that decides where the store is.
    pub surroundings: Surroundings,
    shell: Arc<dyn Shell>,
    clock: SystemClock,
    /// How to look environment variables up.
    lookup: fn(&str) -> Option<OsString>,
    /// What the stores that were opened have done.
    metrics: Mutex<Vec<Arc<Metrics>>>,
    /// Where the folder has been, as its store knows it.
    residence: OnceLock<Residence>,
    /// What the runs that were met are called.
    names: Arc<Names>,
    /// The store, where all calls share it.
    held: Option<Arc<Held>>,
}

impl fmt::Debug for App {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("App").field("surroundings", &self.surroundings).finish_non_exhaustive()
    }
}

impl App {
    /// An app for a folder. `lookup` is how environment variables are looked up; nothing else reads them.
    pub fn new(shell: Arc<dyn Shell>, surroundings: Surroundings, lookup: fn(&str) -> Option<OsString>) -> Self {
        Self {
            surroundings,
            shell,
            clock: SystemClock::new(),
            lookup,
            metrics: Mutex::default(),
            residence: OnceLock::new(),
            names: Arc::default(),
            held: None,
        }
    }

    /// The same for a server: its calls share one store, which none of them closes.
    pub fn holding(&self, shell: Arc<dyn Shell>) -> Self {
        let held = Some(self.held.clone().unwrap_or_default());
        Self {
            held,
            residence: self.residence.clone(),
            names: Arc::clone(&self.names),
            ..Self::new(shell, self.surroundings.clone(), self.lookup)
        }
    }

    /// Opens the store of the folder, or makes it, so that what is wrong with it is found now.
    pub async fn hold(&self) -> Result<(), Failure> {
        self.store_or_create().await.map(drop)
    }

    /// The store isn't held any more: the next call opens it anew. For a handle that serves no more.
    pub async fn let_go(&self) {
        if let Some(held) = &self.held {
            held.let_go().await;
        }
    }

    /// The same for another folder with its own store, and with another shell.
    pub fn at(&self, folder: PathBuf, shell: Arc<dyn Shell>) -> Self {
        let (below, configured) = (PathBuf::new(), None);
        let surroundings =
            Surroundings { folder, below, option: None, configured, variable: None, ..self.surroundings.clone() };
        Self::new(shell, surroundings, self.lookup)
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.surroundings.folder
    }

    /// The port to the shell, to be shared.
    pub fn shared_shell(&self) -> Arc<dyn Shell> {
        Arc::clone(&self.shell)
    }

    /// A path that the user named, seen from the folder: it is meant from where the command was called.
    pub fn path(&self, path: &Path) -> PathBuf {
        self.surroundings.folder.join(&self.surroundings.below).join(path)
    }

    /// A path of the folder as the user names it from where the command was called.
    pub fn seen_from_here(&self, path: &Path) -> PathBuf {
        let below = &self.surroundings.below;
        match path.strip_prefix(below) {
            Ok(inside) if !inside.as_os_str().is_empty() => inside.to_owned(),
            _ => below.components().map(|_| "..").collect::<PathBuf>().join(path),
        }
    }

    /// The port to the shell.
    pub fn shell(&self) -> &dyn Shell {
        &*self.shell
    }

    /// Says something that only a user who wants to know more is shown.
    pub fn detail(&self, text: &str) {
        self.shell.tell(Level::Detail, text);
    }

    /// Says how it goes.
    pub fn note(&self, text: &str) {
        self.shell.tell(Level::Note, text);
    }

    /// Says something that the user should know though it isn't an error.
    pub fn warn(&self, text: &str) {
        self.shell.tell(Level::Warning, text);
    }

    /// Waits for `work`, and shows `words` while it takes long.
    pub async fn showing<T>(&self, words: impl Fn() -> String, work: impl Future<Output = T>) -> T {
        let mut work = std::pin::pin!(work);
        if !self.shell.shows_progress() {
            return work.await;
        }
        let mut shown = false;
        loop {
            match tokio::time::timeout(PATIENCE, work.as_mut()).await {
                Ok(done) => {
                    if shown {
                        self.shell.progress(None);
                    }
                    return done;
                }
                Err(_) => {
                    self.shell.progress(Some(&words()));
                    shown = true;
                }
            }
        }
    }

    /// The same for work that goes through a store: what was read and written so far.
    pub async fn through_stores<T>(&self, doing: &str, work: impl Future<Output = T>) -> T {
        let words = || {
            let (mut read, mut written) = (0, 0);
            for metrics in self.metrics() {
                read += [Call::Read, Call::Section, Call::Pack].map(|call| metrics.of(call).bytes).iter().sum::<u64>();
                written += metrics.written();
            }
            format!("{doing}: {} read, {} written", words::size(read), words::size(written))
        };
        self.showing(words, work).await
    }

    /// What is around a run. Programs are looked for but not run, and no host is called: what a checkpoint names
    /// must not decide that.
    pub fn environment(&self) -> SystemEnvironment {
        SystemEnvironment::new(self.lookup)
    }

    /// How environment variables are looked up.
    pub fn lookup(&self) -> fn(&str) -> Option<OsString> {
        self.lookup
    }

    /// An environment variable, if it is a text.
    pub fn text_of(&self, name: &str) -> Option<String> {
        (self.lookup)(name).and_then(|value| value.into_string().ok())
    }

    /// An environment variable, if it is a text and not empty.
    pub fn variable(&self, name: &str) -> Option<String> {
        self.text_of(name).filter(|value| !value.is_empty())
    }

    /// The user who does this, for the log of a run.
    pub fn user(&self) -> String {
        let named = ["USER", "LOGNAME"].into_iter().find_map(|name| self.variable(name));
        named.unwrap_or_else(|| "command line".to_owned())
    }

    /// The clock.
    pub fn clock(&self) -> &SystemClock {
        &self.clock
    }

    /// What time it is.
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Opens the store of the folder for a verb that only looks.
    pub async fn look(&self) -> Result<Arc<dyn Store>, Failure> {
        self.open_found(Access::Look).await
    }

    /// Opens the store of the folder, if there is one.
    pub async fn store(&self) -> Result<Arc<dyn Store>, Failure> {
        self.open_found(Access::Change).await
    }

    async fn open_found(&self, access: Access) -> Result<Arc<dyn Store>, Failure> {
        match self.surroundings.find()? {
            Found::Place(place) => self.open_own(&place, access).await,
            Found::Nothing { above, unreadable } => {
                for subfolder in unreadable {
                    self.warn(&format!("{}/folder.json can't be read", subfolder.display()));
                }
                let failure = no_store(&self.surroundings.folder);
                Err(match above {
                    Some(above) => {
                        let said = typed(&["-C", &above.to_string_lossy()]);
                        failure.hint(format!("`{said}` uses the one of that folder, `piton init` makes one for this."))
                    }
                    None => failure,
                })
            }
        }
    }

    /// Opens the store of the folder, and makes it if there is none.
    pub async fn store_or_create(&self) -> Result<Arc<dyn Store>, Failure> {
        self.wants_none_in_clear().await?;
        let place = self.surroundings.find_or_create(&self.now().to_string())?;
        self.open_own(&place, Access::Create).await
    }

    /// Opens the store of the folder, which says where the folder has been.
    async fn open_own(&self, place: &Place, access: Access) -> Result<Arc<dyn Store>, Failure> {
        let store = match &self.held {
            Some(held) => {
                // Calls that only look share it with calls that change something.
                let access = if access == Access::Look { Access::Change } else { access };
                held.or_open(self.open(place, access)).await?
            }
            None => self.open(place, access).await?,
        };
        if let (Some(_), Some(residence)) = (&self.held, self.residence.get()) {
            return Ok(self.naming(store, residence));
        }
        let residence = match access {
            Access::Look => self.surroundings.residence(place, store.hashing()),
            Access::Change | Access::Create => self.surroundings.settle(place, store.hashing())?,
        };
        let residence = self.residence.get_or_init(|| residence);
        Ok(self.naming(store, residence))
    }

    /// The same store, in which runs are given names when they are created.
    pub(crate) fn naming(&self, store: Arc<dyn Store>, residence: &Residence) -> Arc<dyn Store> {
        let folder = residence.known_as().to_string_lossy();
        Arc::new(NamedStore::new(store, &folder, Arc::clone(&self.names)))
    }

    /// What the runs that were met are called.
    pub fn names(&self) -> &Arc<Names> {
        &self.names
    }

    /// Where the folder is and was, once its store is open.
    pub fn residence(&self) -> Residence {
        self.residence.get().cloned().unwrap_or_else(|| Residence::only(&self.surroundings.folder))
    }

    /// A user who gives a key doesn't want what is kept in clear: then only a store that is there will do.
    pub async fn wants_none_in_clear(&self) -> Result<(), Failure> {
        if self.surroundings.keys.option.is_none() {
            return Ok(());
        }
        match self.surroundings.find()? {
            Found::Place(place) => self.open_below(&place, Access::Look).await.map(drop),
            Found::Nothing { .. } => Err(self.no_store_for_a_key()),
        }
    }

    /// Opens the store at `place`, with its key if it is encrypted.
    pub async fn open(&self, place: &Place, access: Access) -> Result<Arc<dyn Store>, Failure> {
        let below = self.open_below(place, access).await?;
        if self.surroundings.keys.option.is_some() && !piton_store::is_encrypted(&*below).await? {
            self.warn(UNUSED_KEY);
        }
        redacted(self.unlock(below, &self.surroundings.keys).await?)
    }

    /// Opens one of many stores to look at it. Of an encrypted one that the given key doesn't open, only that is said,
    /// unless the user named it.
    pub async fn open_if_unlocked(&self, place: &Place) -> Result<Option<Arc<dyn Store>>, Failure> {
        let below = self.open_below(place, Access::Look).await?;
        let keys = &self.surroundings.keys;
        let is_encrypted = piton_store::is_encrypted(&*below).await?;
        let is_named = place.is_named();
        let why = if is_encrypted && keys.is_empty() && !is_named {
            "no key was given"
        } else {
            let key = if is_encrypted { Some(keys.key(&*self.shell)?) } else { None };
            match self.unlock_with(below, key.as_ref()).await {
                Err(StoreError::Locked { .. }) if !is_named => "this key doesn't open it",
                store => return redacted(store?).map(Some),
            }
        };
        self.warn(&format!("{} is encrypted, and {why}: its runs aren't listed", place.shown()));
        Ok(None)
    }

    /// Whether a store is encrypted and the given key doesn't open it.
    pub async fn is_locked(&self, place: &Place) -> bool {
        let Ok(below) = self.open_below(place, Access::Look).await else { return false };
        let keys = &self.surroundings.keys;
        let locked = match piton_store::is_encrypted(&*below).await {
            Ok(true) if keys.is_empty() => true,
            Ok(true) => match keys.key(&*self.shell) {
                Ok(key) => {
                    matches!(self.unlock_with(Arc::clone(&below), Some(&key)).await, Err(StoreError::Locked { .. }))
                }
                Err(_) => true,
            },
            _ => false,
        };
        // It was only looked at.
        let _ = below.close().await;
        locked
    }

    /// The same store as its user sees it: with its key if it is encrypted, and measured.
    pub async fn unlock(&self, store: Arc<dyn Store>, keys: &KeySources) -> Result<Arc<dyn Store>, Failure> {
        let key = match piton_store::is_encrypted(&*store).await? {
            true => Some(keys.key(&*self.shell)?),
            false => None,
        };
        Ok(self.unlock_with(store, key.as_ref()).await?)
    }

    /// The same with its key, if it has one.
    pub async fn unlock_with(&self, store: Arc<dyn Store>, key: Option<&Key>) -> Result<Arc<dyn Store>, StoreError> {
        let store = match key {
            Some(key) => Arc::new(EncryptedStore::open(store, key, Arc::new(SystemRandom)).await?),
            None => store,
        };
        let store = MeteredStore::new(store);
        self.metrics.lock().unwrap_or_else(PoisonError::into_inner).push(store.metrics());
        Ok(Arc::new(store))
    }

    /// What the stores that were opened have done so far.
    pub fn metrics(&self) -> Vec<Arc<Metrics>> {
        self.metrics.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Opens the store at `place` as it is, encrypted or not.
    pub async fn open_below(&self, place: &Place, access: Access) -> Result<Arc<dyn Store>, Failure> {
        self.detail(&format!("store {}", place.shown()));
        let (create, looks) = (access == Access::Create, access == Access::Look);
        let registry = Registry::default()
            .with("file", FolderDriver { create })
            .with("memory", MemoryDriver)
            .with("sqlite", SqliteDriver { create, looks });
        #[cfg(feature = "postgres")]
        let registry = crate::place::postgres::with(registry, self, place, access)?;
        #[cfg(feature = "objects")]
        let registry = crate::place::objects::with(registry, self, place, access)?;
        registry.open(&place.url).await.map_err(|error| match error {
            #[cfg(feature = "objects")]
            error if crate::place::objects::is_here(&place.url) => crate::place::objects::unopened(error, place),
            #[cfg(feature = "postgres")]
            error if crate::place::postgres::is_here(&place.url) => crate::place::postgres::unopened(error, place),
            StoreError::Invalid { ref what, .. } if what.starts_with("store URL") => Failure::usage(error.to_string())
                .hint(match place.origin {
                    Origin::Variable => format!("PITON_STORE names it; a store is written as {WRITTEN}."),
                    Origin::Configuration => format!("the configuration names it; a store is written as {WRITTEN}."),
                    _ => format!("a store is written as {WRITTEN}."),
                }),
            StoreError::NotFound { .. } if !create => match place.origin {
                Origin::Here | Origin::State => no_store(&self.surroundings.folder),
                _ => Failure::not_found(format!("there is no store at {}", place.shown())).hint(
                    "`piton init` makes one there, `piton init --encrypt --key-file FILE` an encrypted one; or look where it \
                     really is.",
                ),
            },
            StoreError::Invalid { .. } => {
                Failure::fixable(error.to_string()).hint("nothing was changed; name another file with `--store URL`.")
            }
            error => Failure::from(error),
        })
    }
}

impl App {
    /// There is none, and a user who gives a key doesn't mean one in clear.
    pub fn no_store_for_a_key(&self) -> Failure {
        let hint = "with a key none is made in clear: `piton init --encrypt --key-file FILE` makes an encrypted one.";
        self.no_store().hint(hint)
    }

    /// There is no store for the folder.
    pub fn no_store(&self) -> Failure {
        no_store(&self.surroundings.folder)
    }
}

/// The store under a policy without secrets, so that a text can't ask for one.
fn redacted(store: Arc<dyn Store>) -> Result<Arc<dyn Store>, Failure> {
    let redaction = Redaction::new(&no_secrets())
        .map_err(|error| Failure::internal("a policy without secrets is refused").because(&error))?;
    Ok(Arc::new(RedactedStore::new(store, Arc::new(redaction))))
}

fn no_store(folder: &Path) -> Failure {
    Failure::not_found(format!("there is no store for {} yet", folder.display()))
        .hint("it is made by `piton init`, or by the first `piton guard -- PROGRAM`, `piton save` or `piton run DOC`.")
}
