//! Making the store of a folder, and changing its key.

use std::path::Path;
use std::sync::Arc;

use piton_log::RunLog;
use piton_runtime::{History, SystemRandom};
use piton_store::{EncryptedStore, RunQuery, Store, StoreError};

use crate::app::{Access, App};
use crate::failure::Failure;
use crate::place::keys::read_or_make;
use crate::place::{Found, Origin, Place};
use crate::plan::Plan;
use crate::views::store::{InitView, RotatedView};
use crate::words::{count, size};

/// How many runs of a store that is to be adopted are named.
const SHOWN: usize = 10;

/// What is made.
#[derive(Debug, Clone, Copy, Default)]
pub struct MakeStore {
    /// Inside the folder.
    pub here: bool,
    /// Encrypted.
    pub encrypt: bool,
    /// With a passphrase, not with a key file.
    pub passphrase: bool,
}

/// Makes the store of the folder if there is none, and says where it is.
pub async fn init(app: &App, wanted: MakeStore) -> Result<InitView, Failure> {
    let surroundings = &app.surroundings;
    if !wanted.encrypt {
        app.wants_none_in_clear().await?;
        if wanted.here && surroundings.keys.option.is_some() && !surroundings.has_store_here() {
            return Err(app.no_store_for_a_key());
        }
    }
    let before = surroundings.find()?;
    let now = app.now().to_string();
    let place = if wanted.here { surroundings.create_here(&now)? } else { surroundings.find_or_create(&now)? };
    let encrypted = match wanted.encrypt {
        true => encrypt(app, wanted, &place).await?,
        false => None,
    };
    let store = match encrypted {
        Some(store) => store,
        None => app.open(&place, Access::Create).await?,
    };
    surroundings.settle(&place, store.hashing())?;
    let usage = store.usage().await?;
    let view = InitView {
        store: store.url(),
        location: InitView::location(place.origin),
        bytes: usage.bytes,
        runs: usage.runs,
        encrypted: store.hashing().is_keyed(),
        left: match before {
            Found::Place(old) if wanted.here && old.origin == Origin::State => Some(old.url),
            _ => None,
        },
    };
    store.close().await?;
    Ok(view)
}

/// A store that came with the folder, and is to become the user's.
pub struct Adopting {
    place: Place,
    /// What it holds, and what is dropped.
    pub plan: Plan,
}

impl Adopting {
    /// Looks at what the folder's `.piton/` holds. `None` if it is the user's already.
    pub async fn plan(app: &App) -> Result<Option<Self>, Failure> {
        if app.surroundings.has_no_folder_here()? {
            return Err(Failure::not_found(format!("there is no .piton in {}", app.folder().display()))
                .hint("`piton init --here` makes one."));
        }
        let Some(place) = app.surroundings.foreign_here()? else { return Ok(None) };
        let store = app.open(&place, Access::Look).await?;
        let usage = store.usage().await?;
        let mut plan = Plan::new(format!("make {} your own store of this folder", place.url));
        let runs = count(usize::try_from(usage.runs).unwrap_or(usize::MAX), "run");
        plan.line(format!("it holds {runs}, in {}", size(usage.bytes)));
        for run in store.list(RunQuery { limit: Some(SHOWN), ..RunQuery::default() }).await? {
            let log = RunLog::open(Arc::clone(&store), &run.id).await?;
            let checkpoints = usize::try_from(History::read(&log).await?.totals.checkpoints).unwrap_or(usize::MAX);
            let checkpoints = count(checkpoints, "checkpoint");
            plan.line(format!("run {} ({}): {}, {checkpoints}", run.id, run.name, run.status));
        }
        match app.surroundings.unfinished(&place).len() {
            0 => plan.line("no restore is unfinished"),
            many => plan.line(format!(
                "{} dropped: the files stay as they are",
                match many {
                    1 => "1 unfinished restore is".to_owned(),
                    many => format!("{many} unfinished restores are"),
                }
            )),
        }
        plan.line("reservations and what is remembered of files are dropped");
        store.close().await?;
        Ok(Some(Self { place, plan }))
    }

    /// Makes it the user's.
    pub fn carry_out(self, app: &App) -> Result<(), Failure> {
        app.surroundings.adopt(&self.place, &app.now().to_string())
    }
}

/// Turns encryption on in the new store. `None` if it is on already.
async fn encrypt(app: &App, wanted: MakeStore, place: &Place) -> Result<Option<Arc<dyn Store>>, Failure> {
    let keys = &app.surroundings.keys;
    if !wanted.passphrase && keys.named_file().is_none() {
        return Err(Failure::usage("--encrypt needs a key")
            .hint("name a file for it with `--key-file FILE` (made if it isn't there), or say `--passphrase`."));
    }
    // Looked at before a key file is made; and a store is made only when there is a key.
    if let Ok(below) = app.open_below(place, Access::Change).await {
        if piton_store::is_encrypted(&*below).await? {
            return Ok(None);
        }
        if below.usage().await?.runs > 0 {
            return Err(Failure::refused(format!("{} holds runs that aren't encrypted", below.url()))
                .hint("make a new store with `--store URL --encrypt`, and copy them there."));
        }
    }
    let key = match keys.named_file() {
        Some(path) if !wanted.passphrase => {
            let (key, made) = read_or_make(path)?;
            if made {
                let shown = path.display();
                app.note(&format!(
                    "{shown} is the new key. Without it the store can't be read: keep a copy elsewhere."
                ));
            }
            key
        }
        _ => keys.new_passphrase(app.shell())?,
    };
    let below = app.open_below(place, Access::Create).await?;
    Ok(Some(Arc::new(EncryptedStore::create(below, &key, Arc::new(SystemRandom)).await?)))
}

/// Puts another key in the place of the present one: that in a file, which is made if it isn't there, or a passphrase. No
/// record is touched. Says whether the key file is new.
pub async fn rotate_key(app: &App, new_key_file: Option<&Path>) -> Result<(RotatedView, bool), Failure> {
    let Found::Place(place) = app.surroundings.find()? else { return Err(app.no_store()) };
    let store = app.open_below(&place, Access::Change).await?;
    if !piton_store::is_encrypted(&*store).await? {
        return Err(Failure::fixable(format!("{} isn't encrypted", store.url()))
            .hint("`piton init --store URL --encrypt --key-file FILE` makes a new store that is."));
    }
    let keys = &app.surroundings.keys;
    let old = keys.key(app.shell())?;
    let (new, made) = match new_key_file {
        Some(path) => read_or_make(path)?,
        None => (keys.new_passphrase(app.shell())?, false),
    };
    if !made {
        // A key that opens the store before it is rotated would still open it afterwards.
        match EncryptedStore::open(Arc::clone(&store), &new, Arc::new(SystemRandom)).await {
            Ok(_) => {
                return Err(Failure::fixable("the new key opens the store already, and nothing was changed").hint(
                    match new_key_file {
                        Some(_) => {
                            "name a file that isn't there yet with `--new-key-file FILE`: a new key is made in it."
                        }
                        None => {
                            "unset PITON_PASSPHRASE to be asked for both passphrases on a terminal; without one, give \
                             the old one by PITON_KEY_COMMAND and the new one in PITON_PASSPHRASE."
                        }
                    },
                ));
            }
            Err(StoreError::Locked { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    EncryptedStore::rotate(&*store, &old, &new, &SystemRandom).await?;
    let view = RotatedView { store: store.url(), rotated: true };
    store.close().await?;
    Ok((view, made))
}
