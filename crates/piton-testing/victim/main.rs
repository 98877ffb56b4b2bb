//! `journal-victim FLAW DIR COUNT [THREADS]`: appends COUNT records to the journal in DIR, saying
//! `ack N` after each. With THREADS, so many threads do that, each in its own folder of DIR, one after
//! the other: the later ones are behind in the count of their system calls.
//!
//! `journal-victim --slow DIR`: says `tick N` every 10 ms, for ever.

mod append;
mod journal;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;
use std::{env, fs, io, thread};

use append::append;
use journal::Flaw;

fn main() -> ExitCode {
    let args: Vec<String> = env::args().skip(1).collect();
    match run(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            drop(writeln!(io::stderr(), "error: {error}"));
            ExitCode::FAILURE
        }
    }
}

fn run(args: &[String]) -> io::Result<()> {
    let usage = || io::Error::other("usage: journal-victim FLAW DIR COUNT [THREADS]");
    let number = |at: usize| args.get(at).map(|text| text.parse::<u64>().map_err(|_| usage())).transpose();
    let [option, dir, ..] = args else { return Err(usage()) };
    if option == "--slow" {
        return tick();
    }
    let flaw = Flaw::of_option(option).ok_or_else(usage)?;
    let count = number(2)?.ok_or_else(usage)?;
    let dir = Path::new(dir);
    let Some(threads) = number(3)? else { return append(dir, flaw, count, &mut io::stdout()) };
    for n in 0..threads {
        let folder: PathBuf = dir.join(n.to_string());
        fs::create_dir_all(&folder)?;
        let work = thread::spawn(move || append(&folder, flaw, count, &mut io::stdout()));
        work.join().map_err(|_| io::Error::other("a thread panicked"))??;
    }
    Ok(())
}

fn tick() -> io::Result<()> {
    for n in 0_u64.. {
        writeln!(io::stdout(), "tick {n}")?;
        thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}
