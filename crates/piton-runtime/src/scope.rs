//! Where steps get their names from, so that a program which runs again finds what it did before.
//!
//! A scope counts its own calls, and only one call at a time can be made on it: the compiler sees to
//! that. So the n-th call of a scope is the n-th call whichever process runs the program, however its tasks are
//! scheduled. What runs side by side runs in branches, each a scope of its own with a name.

use std::collections::HashMap;
use std::sync::Arc;

use piton_log::state;
use piton_store::Hashing;
use piton_types::{BlobId, InvalidId, StepPath, Timestamp, Value, from_value, to_value};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::core::Core;
use crate::line::{Line, scope_of};
use crate::record::StepRecord;
use crate::{Call, RunError};

/// A part of a run in which things happen one after the other: the run itself, or a branch of it.
///
/// ```
/// # use std::sync::Arc;
/// # use piton_runtime::{Context, OpenRun, Run, RunError};
/// # use piton_store_objects::ObjectStore;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), RunError> {
/// # let context = Context::system(Arc::new(ObjectStore::in_memory()));
/// let mut run = Run::open(&context, OpenRun::default()).await?;
/// let (mut near, mut far) = (run.branch("near")?, run.branch("far")?);
/// let count = async |word: &str| Ok::<_, std::io::Error>(word.len());
/// let (a, b) = tokio::join!(near.step("count", "bee", count), far.step("count", "apiary", count));
/// assert_eq!((a?, b?), (3, 6));
/// let paths = ["far/count", "near/count", "count"].map(|path| path.parse().expect("a path")).to_vec();
/// assert_eq!(run.finished_among(paths).await?.len(), 2);
/// # Ok(())
/// # }
/// ```
///
/// Two calls at once on one scope don't compile:
///
/// ```compile_fail,E0499
/// # use piton_runtime::{Run, RunError};
/// # async fn both(run: &mut Run) {
/// let work = async |n: u32| Ok::<_, std::io::Error>(n);
/// tokio::join!(run.step("a", 1, work), run.step("a", 2, work));
/// # }
/// ```
#[derive(Debug)]
pub struct Scope {
    pub(crate) core: Arc<Core>,
    /// Empty for the run itself.
    path: String,
    /// How often each name was used.
    uses: HashMap<String, u32>,
    /// How many durable calls were made.
    made: u32,
    /// Belongs to a handle that makes no calls.
    closed: bool,
}

/// The place of one call.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    pub(crate) path: StepPath,
    pub(crate) number: u32,
}

/// A value that goes into the log, and its hash.
#[derive(Debug, Clone)]
pub(crate) struct Input {
    pub(crate) value: Value,
    pub(crate) hash: BlobId,
}

impl Input {
    pub(crate) fn new(what: &StepPath, input: &impl Serialize) -> Result<Self, RunError> {
        let named = || format!("the input of step {what}");
        let value = to_value(input).map_err(|error| RunError::value(named())(error))?;
        crate::size::check(&value, named)?;
        Ok(Self { hash: hash(&value)?, value })
    }
}

/// Plain in every store, so that a run which was copied into an encrypted one still fits.
pub(crate) fn hash(value: &Value) -> Result<BlobId, RunError> {
    Ok(state::encode(&Hashing::PLAIN, value)?.root)
}

impl Scope {
    pub(crate) fn outermost(core: Arc<Core>) -> Self {
        Self { core, path: String::new(), uses: HashMap::new(), made: 0, closed: false }
    }

    /// A scope in which no calls can be made.
    pub(crate) fn closed(core: Arc<Core>) -> Self {
        Self { closed: true, ..Self::outermost(core) }
    }

    /// A branch of this scope, whose calls may run beside those of others. The second branch of a name
    /// is `name#2`, and so on.
    ///
    /// A branch costs nothing. It may be moved into a task of its own; the run is held as long as one of
    /// its branches exists.
    ///
    /// # Errors
    ///
    /// [`RunError::Name`] if the name isn't one.
    pub fn branch(&mut self, name: &str) -> Result<Self, RunError> {
        let path = self.name(name)?.to_string();
        Ok(Self { path, ..Self::outermost(Arc::clone(&self.core)) })
    }

    /// The path of the next use of a name.
    fn name(&mut self, name: &str) -> Result<StepPath, RunError> {
        let refused = if self.closed { Some("this handle makes no calls") } else { refused(name) };
        if let Some(reason) = refused {
            let text = name.chars().take(80).collect();
            return Err(RunError::Name(InvalidId { kind: "step name", text, reason }));
        }
        let uses = self.uses.get(name).map_or(1, |uses| uses + 1);
        let slash = if self.path.is_empty() { "" } else { "/" };
        let path = match uses {
            1 => format!("{}{slash}{name}", self.path),
            _ => format!("{}{slash}{name}#{uses}", self.path),
        };
        let path = path.parse()?;
        match self.uses.get_mut(name) {
            Some(known) => *known = uses,
            None => drop(self.uses.insert(name.to_owned(), uses)),
        }
        Ok(path)
    }

    /// The place of the next call.
    pub(crate) fn place(&mut self, name: &str) -> Result<Place, RunError> {
        let path = self.name(name)?;
        self.made += 1;
        Ok(Place { path, number: self.made - 1 })
    }

    /// The moment at which this was first called, by the wall clock.
    pub async fn now(&mut self) -> Result<Timestamp, RunError> {
        let now = self.core.context.clock.now();
        self.note("now", || now).await
    }

    /// `N` bytes of chance, the same for every process that goes on with the run.
    pub async fn random<const N: usize>(&mut self) -> Result<[u8; N], RunError> {
        let random = Arc::clone(&self.core.context.random);
        let drawn = self.note("random", || {
            let mut bytes = vec![0; N];
            random.fill(&mut bytes);
            bytes
        });
        let drawn: Vec<u8> = drawn.await?;
        drawn.try_into().map_err(|drawn: Vec<u8>| {
            let what = format!("{N} random bytes, of which the log has {}", drawn.len());
            RunError::value(what)(serde::de::Error::custom("another number of bytes is wanted"))
        })
    }

    /// A new id that no other run has, the same for every process that goes on with this run.
    pub async fn new_id(&mut self) -> Result<String, RunError> {
        let context = self.core.context.clone();
        self.note("id", || piton_types::RunId::generate(context.clock.now(), &*context.random).to_string()).await
    }

    /// Records something that the program finds out for itself. Nothing outside has seen it, so it needs no sync of its
    /// own: it is durable with whatever follows.
    async fn note<T: Serialize + DeserializeOwned>(
        &mut self,
        name: &str,
        find: impl FnOnce() -> T,
    ) -> Result<T, RunError> {
        let place = self.place(name)?;
        let input = Input::new(&place.path, &())?;
        let what = || RunError::value(format!("the output of step {}", place.path));
        if let Some(record) = self.core.find(&place, &input).await? {
            return from_value(record.output).map_err(what());
        }
        self.core.check_ready()?;
        let found = find();
        let output = to_value(&found).map_err(what())?;
        let mut record = self.core.blank(&place, input, 0);
        record.output = output;
        self.core.put_down(record, Vec::new(), piton_types::Durability::Relaxed).await?;
        Ok(found)
    }
}

fn refused(name: &str) -> Option<&'static str> {
    match name {
        "" => Some("it is empty"),
        _ if name.contains('/') => Some("'/' separates the names of a path"),
        _ if name.contains('#') => Some("'#' marks the uses of a name"),
        _ => None,
    }
}

impl Core {
    /// The newest attempt at the step of this place, if there was one. What the log has at this place must
    /// be this very call.
    pub(crate) async fn find(&self, place: &Place, input: &Input) -> Result<Option<StepRecord>, RunError> {
        self.recall_at(&place.path, place.number).await?;
        let known = self.known();
        let record = known.line.steps.get(&place.path);
        let other = match (misplaced(&known.line, place, record), record) {
            (Some(other), _) => other,
            (None, None) => return Ok(None),
            // A failed step that is to be tried again may take something else.
            (None, Some(record))
                if record.input_hash == Some(input.hash) || known.line.reopened.contains_key(&place.path) =>
            {
                return Ok(Some((**record).clone()));
            }
            (None, Some(record)) => Call { step: record.path.clone(), input: Some(record.input.clone()) },
        };
        drop(known);
        Err(self.changed(other, place, input))
    }

    /// That the log has nothing else at this place, and this call nowhere else.
    pub(crate) async fn check_place(&self, place: &Place, input: &Input) -> Result<(), RunError> {
        self.recall_at(&place.path, place.number).await?;
        let other = {
            let line = &self.known().line;
            misplaced(line, place, line.steps.get(&place.path))
        };
        other.map_or(Ok(()), |other| Err(self.changed(other, place, input)))
    }

    pub(crate) fn changed(&self, expected: Call, place: &Place, input: &Input) -> RunError {
        let got = Call { step: place.path.clone(), input: Some(input.value.clone()) };
        RunError::Changed { run: self.id.clone(), expected: Box::new(expected), got: Box::new(got) }
    }
}

/// The call that the log has at this place if it is another one, or at another place if it is this one. `record` is
/// what it has of this step.
fn misplaced(line: &Line, place: &Place, record: Option<&Arc<StepRecord>>) -> Option<Call> {
    let found = match line.at(scope_of(&place.path), place.number) {
        Some(found) if *found != place.path => found,
        Some(_) => return None,
        None if record.is_some_and(|step| step.place.is_some()) => &place.path,
        None => return None,
    };
    let input = line.steps.get(found).map(|step| &step.input);
    let input = input.or_else(|| line.effects.get(found).map(|effect| &effect.intent.input));
    Some(Call { step: found.clone(), input: input.cloned() })
}
