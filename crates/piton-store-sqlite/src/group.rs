//! Group commit. Work that can't be done at once waits here, and one thread takes all the appends that
//! are waiting into one transaction: one savepoint each, so that one that is refused leaves the others
//! alone, and one sync for all. A group is as durable as the strictest of its members asks.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use piton_store::{Commit, StoreError};
use piton_types::Durability;
use tokio::sync::oneshot;

use crate::append::{self, Known, Room, Tip};
use crate::counters::Tally;
use crate::errors::{is_busy, translate};
use crate::open::patiently;
use crate::writer::{Core, Failure, Writer, locked};

/// The largest group.
const MEMBERS: usize = 1024;

type Answer = Result<(), StoreError>;

/// Work that waits for the writer.
pub(crate) enum Job {
    /// An append, and who waits for it.
    Append(Box<Commit>, oneshot::Sender<Answer>),
    /// Anything else, which takes the writer itself.
    Task(Box<dyn FnOnce() + Send>),
}

/// What waits for the writer.
#[derive(Default)]
pub(crate) struct Queue {
    jobs: Mutex<VecDeque<Job>>,
    /// How many there are, to look at without the lock.
    length: AtomicUsize,
    arrived: Condvar,
    stopped: AtomicBool,
}

impl Queue {
    /// Whether nothing waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.length.load(Ordering::Acquire) == 0
    }

    /// Adds a job, after `start` has seen to it that somebody serves the queue; `None` if it was stopped.
    fn push<E>(&self, job: Job, start: impl FnOnce() -> Result<(), E>) -> Option<Result<(), E>> {
        let mut jobs = locked(&self.jobs);
        if self.stopped.load(Ordering::Acquire) {
            return None;
        }
        if let Err(error) = start() {
            return Some(Err(error));
        }
        jobs.push_back(job);
        self.length.store(jobs.len(), Ordering::Release);
        self.arrived.notify_one();
        Some(Ok(()))
    }

    /// Takes no more jobs; the thread ends when it has done those that wait.
    pub(crate) fn stop(&self) {
        let jobs = locked(&self.jobs);
        self.stopped.store(true, Ordering::Release);
        self.arrived.notify_all();
        drop(jobs);
    }

    /// Waits until there is something; `false` once it was stopped and nothing is left.
    fn wait(&self) -> bool {
        let mut jobs = locked(&self.jobs);
        while jobs.is_empty() {
            if self.stopped.load(Ordering::Acquire) {
                return false;
            }
            jobs = self.arrived.wait(jobs).unwrap_or_else(PoisonError::into_inner);
        }
        true
    }

    /// Takes the job that is first, if it isn't an append.
    fn take_task(&self) -> Option<Box<dyn FnOnce() + Send>> {
        let mut jobs = locked(&self.jobs);
        let Some(Job::Task(_)) = jobs.front() else { return None };
        let Some(Job::Task(task)) = jobs.pop_front() else { return None };
        self.length.store(jobs.len(), Ordering::Release);
        Some(task)
    }

    /// Takes the appends that are first.
    fn take_appends(&self) -> Vec<(Box<Commit>, oneshot::Sender<Answer>)> {
        let mut jobs = locked(&self.jobs);
        let mut group = Vec::new();
        while group.len() < MEMBERS
            && let Some(Job::Append(..)) = jobs.front()
            && let Some(Job::Append(commit, answer)) = jobs.pop_front()
        {
            group.push((commit, answer));
        }
        self.length.store(jobs.len(), Ordering::Release);
        group
    }
}

/// Whether one of them must be.
fn is_durable(chain: &[Commit]) -> bool {
    chain.iter().any(|commit| commit.durability == Durability::Durable)
}

impl Core {
    /// Appends: at once if the writer is free, else in a group.
    pub(crate) async fn append(&self, commit: Commit) -> Answer {
        append::check(&commit)?;
        self.check_writable()?;
        if let Some(answer) = self.append_if_free(&commit) {
            return answer;
        }
        let (answer, answered) = oneshot::channel();
        self.enqueue(Job::Append(Box::new(commit), answer))?;
        answered.await.unwrap_or_else(|_| Err(self.closed()))
    }

    /// Appends entries of one run that follow each other, in one transaction.
    pub(crate) async fn append_chain(self: &Arc<Self>, chain: Vec<Commit>) -> Answer {
        Commit::check_chain(&chain)?;
        chain.iter().try_for_each(append::check)?;
        if chain.is_empty() {
            return Ok(());
        }
        self.check_writable()?;
        if let Some(answer) = self.append_chain_if_free(&chain) {
            return answer;
        }
        let (answer, answered) = oneshot::channel();
        let core = Arc::clone(self);
        let task = move || {
            // Nobody listens any more if the future was dropped.
            drop(answer.send(core.append_chain_patiently(&chain)));
        };
        self.enqueue(Job::Task(Box::new(task)))?;
        answered.await.unwrap_or_else(|_| Err(self.closed()))
    }

    fn append_chain_if_free(&self, chain: &[Commit]) -> Option<Answer> {
        if self.chores.holds_up(&self.tally) {
            return None;
        }
        let mut guard = self.free_writer()?;
        let Some(writer) = guard.as_mut() else { return Some(Err(self.closed())) };
        match writer.begin(is_durable(chain)) {
            Ok(()) => Some(self.commit_chain(writer, chain)),
            Err(error) if is_busy(&error) => None,
            Err(error) => Some(Err(self.abandon(writer, &error, false))),
        }
    }

    fn append_chain_patiently(&self, chain: &[Commit]) -> Answer {
        self.check_writable()?;
        let mut guard = locked(&self.writer);
        let Some(writer) = guard.as_mut() else { return Err(self.closed()) };
        match patiently(self.options.patience, || writer.begin(is_durable(chain))) {
            Ok(()) => self.commit_chain(writer, chain),
            Err(error) => Err(self.abandon(writer, &error, false)),
        }
    }

    /// Appends all of a chain in the transaction that was begun, or nothing, and ends it.
    fn commit_chain(&self, writer: &mut Writer, chain: &[Commit]) -> Answer {
        writer.check_tips();
        let mut known = match chain.first() {
            Some(first) => match writer.tip(&first.run) {
                Some(tip) => Known::Tip(tip),
                None => self.known_run(&first.run).map_or(Known::Nothing, Known::Number),
            },
            None => Known::Nothing,
        };
        let mut applied = Vec::with_capacity(chain.len());
        for commit in chain {
            match append::apply(writer, commit, known, Room::Left) {
                Ok(tip) => {
                    known = Known::Tip(tip);
                    applied.push((commit, tip));
                }
                Err(Failure::Sql(error)) => return Err(self.abandon(writer, &error, false)),
                Err(Failure::Refused(refusal)) => {
                    return match writer.run("ROLLBACK") {
                        Ok(()) => Err(refusal),
                        Err(error) => Err(self.abandon(writer, &error, false)),
                    };
                }
            }
        }
        match writer.commit(self.mark_use()) {
            Ok(()) => {
                self.committed(writer, &applied, is_durable(chain));
                Ok(())
            }
            Err(error) => Err(self.abandon(writer, &error, true)),
        }
    }

    /// Lets work wait for the writer.
    pub(crate) fn enqueue(&self, job: Job) -> Result<(), StoreError> {
        self.queue.push(job, || self.serving.start(&self.me)).unwrap_or_else(|| Err(self.closed()))
    }

    fn append_if_free(&self, commit: &Commit) -> Option<Answer> {
        if self.chores.holds_up(&self.tally) {
            return None;
        }
        let mut guard = self.free_writer()?;
        let Some(writer) = guard.as_mut() else { return Some(Err(self.closed())) };
        match writer.begin(commit.durability == Durability::Durable) {
            Ok(()) => {
                Tally::add(&self.tally.inline, 1);
                self.commit_group(writer, std::slice::from_ref(&commit)).pop()
            }
            Err(error) if is_busy(&error) => None,
            Err(error) => Some(Err(self.abandon(writer, &error, false))),
        }
    }

    /// Serves the queue until it is stopped.
    pub(crate) fn serve(self: Arc<Self>) {
        while self.queue.wait() {
            self.chores.wait_for_the_log(&self.tally);
            if let Some(task) = self.queue.take_task() {
                task();
                continue;
            }
            // Whoever comes while the writer is taken joins the group, so the group is taken after it.
            let mut guard = locked(&self.writer);
            let group = self.queue.take_appends();
            let commits: Vec<_> = group.iter().map(|(commit, _)| &**commit).collect();
            let answers = match (guard.as_mut(), self.check_writable()) {
                (Some(writer), Ok(())) => self.append_patiently(writer, &commits),
                _ => {
                    commits.iter().map(|_| Err(self.check_writable().err().unwrap_or_else(|| self.closed()))).collect()
                }
            };
            drop(guard);
            for ((_, waiting), answer) in group.into_iter().zip(answers) {
                // Nobody listens any more if the future was dropped.
                drop(waiting.send(answer));
            }
        }
    }

    fn append_patiently(&self, writer: &mut Writer, commits: &[&Commit]) -> Vec<Answer> {
        let durable = commits.iter().any(|commit| commit.durability == Durability::Durable);
        match patiently(self.options.patience, || writer.begin(durable)) {
            Ok(()) => self.commit_group(writer, commits),
            Err(error) => self.fail_all(writer, commits, &error, false),
        }
    }

    /// Appends all of them in the transaction that was begun, and ends it.
    fn commit_group(&self, writer: &mut Writer, commits: &[&Commit]) -> Vec<Answer> {
        let alone = commits.len() == 1;
        writer.check_tips();
        let mut answers = Vec::with_capacity(commits.len());
        let mut applied = Vec::with_capacity(commits.len());
        for commit in commits {
            match self.apply(writer, commit, alone) {
                Ok(tip) => {
                    applied.push((*commit, tip));
                    answers.push(Ok(()));
                }
                Err(Failure::Refused(refusal)) => answers.push(Err(refusal)),
                Err(Failure::Sql(error)) => return self.fail_all(writer, commits, &error, false),
            }
        }
        let ended = if applied.is_empty() { writer.run("ROLLBACK") } else { writer.commit(self.mark_use()) };
        if let Err(error) = ended {
            return self.fail_all(writer, commits, &error, true);
        }
        if applied.is_empty() {
            return answers;
        }
        let durable = commits.iter().any(|commit| commit.durability == Durability::Durable);
        self.committed(writer, &applied, durable);
        answers
    }

    /// A transaction with these appends is in the log.
    fn committed(&self, writer: &mut Writer, applied: &[(&Commit, Tip)], durable: bool) {
        let mut bytes = 0;
        for (commit, tip) in applied {
            bytes += (commit.entry.len() + commit.pack.len()) as u64;
            if self.known_run(&commit.run).is_none() {
                self.remember_run(&commit.run, tip.number);
            }
        }
        writer.keep_tips(applied);
        Tally::add(&self.tally.commits, applied.len() as u64);
        Tally::add(&self.tally.groups, 1);
        Tally::add(&self.tally.syncs, u64::from(durable));
        Tally::add(&self.tally.bytes, bytes);
        self.after_commit(applied.len() as u64);
    }

    /// One member. A refused one leaves nothing behind.
    fn apply(&self, writer: &Writer, commit: &Commit, alone: bool) -> Result<Tip, Failure> {
        if alone && let Some(tip) = writer.tip(&commit.run) {
            return append::apply(writer, commit, Known::Tip(tip), Room::Made);
        }
        let known = self.known_run(&commit.run).map_or(Known::Nothing, Known::Number);
        if alone {
            return append::apply(writer, commit, known, Room::Made);
        }
        writer.run("SAVEPOINT member")?;
        let applied = append::apply(writer, commit, known, Room::Made);
        if let Err(Failure::Refused(_)) = applied {
            writer.run("ROLLBACK TO member")?;
        }
        if !matches!(applied, Err(Failure::Sql(_))) {
            writer.run("RELEASE member")?;
        }
        applied
    }

    /// The whole group fails as one: its transaction is taken back.
    fn fail_all(&self, writer: &Writer, commits: &[&Commit], error: &rusqlite::Error, committing: bool) -> Vec<Answer> {
        let first = self.abandon(writer, error, committing);
        let mut answers = Vec::with_capacity(commits.len());
        answers.push(Err(first));
        for _ in 1..commits.len() {
            answers.push(Err(match self.check_writable() {
                Err(poisoned) => poisoned,
                Ok(()) => translate(error, &self.files.database),
            }));
        }
        answers
    }
}
