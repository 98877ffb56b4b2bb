//! Benchmarks. Each prints ratios against a peer or a limit of the machine that is measured in the same
//! run, in interleaved rounds, because absolute times say little on a shared machine.
//!
//! `cargo run --release -p piton-bench -- conversation|cipher|file-store|gc|check|files|load|many|steps|flow|flow-durable|code|merge|drift|leases|serve [--dir DIR]`
//! `… -- postgres|queue --postgres URL [--minutes N]`

mod alloc;
mod cipher;
mod code;
mod conversation;
mod corpus;
mod database;
mod file_store;
mod files;
mod flow;
mod flow_durable;
mod keep;
mod load;
mod many;
mod measure;
mod postgres;
mod queue;
mod serve;
mod steps;
mod together;

use std::path::PathBuf;

use anyhow::Context;

#[global_allocator]
static ALLOCATOR: alloc::Counting = alloc::Counting;

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let what = arguments.first().map_or("", String::as_str);
    let option = |name| arguments.iter().position(|argument| argument == name).and_then(|at| arguments.get(at + 1));
    let server = || option("--postgres").context("--postgres URL says where the server is: bench/peers/pg.sh dsn");
    let dir = option("--dir").map_or_else(|| PathBuf::from("bench/scratch"), PathBuf::from);
    std::fs::create_dir_all(&dir)?;
    let mut scratch = tempfile::tempdir_in(&dir)?;
    scratch.disable_cleanup(std::env::var_os("PITON_BENCH_KEEP").is_some());
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        match what {
            "conversation" => conversation::run(scratch.path()).await,
            "cipher" => cipher::run(scratch.path()).await,
            "file-store" => file_store::run(scratch.path()).await,
            "gc" => keep::run_gc(scratch.path()).await,
            "check" => keep::run_check(scratch.path()).await,
            "files" => files::run(scratch.path()),
            "load" => load::run(scratch.path()).await,
            "many" => many::run(scratch.path()).await,
            "flow" => flow::run(scratch.path()).await,
            "flow-durable" => flow_durable::run(scratch.path()).await,
            "steps" => steps::run(scratch.path()).await,
            "code" => code::run().await,
            "merge" => together::merging(scratch.path()),
            "drift" => together::drift(scratch.path()).await,
            "leases" => together::leases(scratch.path()).await,
            "lease-worker" => together::lease_worker(&dir).await,
            "postgres" => postgres::run(server()?).await,
            "queue" => {
                let minutes = option("--minutes").map_or(Ok(5.0), |minutes| minutes.parse())?;
                queue::run(scratch.path(), server()?, minutes).await
            }
            "serve" => serve::run(scratch.path()).await,
            _ => anyhow::bail!(
                "usage: piton-bench conversation|cipher|file-store|gc|check|files|load|many|steps|flow|flow-durable|code|merge|drift|leases|postgres|queue|serve [--dir DIR] [--postgres URL] [--minutes N]"
            ),
        }
    })
}
