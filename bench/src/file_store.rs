//! A durable save in the file store beside the bare system calls: write, sync, link, sync of the folder, of as many
//! bytes, in turns.

use std::fs::File;
use std::io::Write as _;
use std::path::Path as FilePath;
use std::sync::Arc;
use std::time::Instant;

use piton_log::state::State;
use piton_log::{Content, NewRun, RunLog};
use piton_store::Store;
use piton_store_objects::{FolderOptions, ObjectStore};
use piton_types::{Durability, Path, Timestamp, Value};

use crate::conversation::{checkpoint, message};
use crate::corpus;
use crate::measure::{Samples, ratio, report};

const SAVES: usize = 500;

pub(crate) async fn run(scratch: &FilePath) -> anyhow::Result<()> {
    let text = corpus::text(2_000_000)?;
    let store: Arc<dyn Store> = Arc::new(ObjectStore::in_folder(scratch.join("store"), &FolderOptions::default())?);
    let mut log = RunLog::create(Arc::clone(&store), NewRun::new("saves".parse()?, Timestamp::from_millis(1))).await?;
    let path: Path = "/messages".parse()?;
    let mut state = State::new(store.hashing(), &Value::map([("messages", Value::List(Vec::new()))]))?;
    let (temporary, target) = (scratch.join("bare/scratch"), scratch.join("bare/files"));
    std::fs::create_dir_all(&temporary)?;
    std::fs::create_dir_all(&target)?;
    let (mut ours, mut bare) = <(Samples, Samples)>::default();
    for n in 0..SAVES {
        state.push(&path, message(&text, n)).await?;
        let bytes = vec![b'x'; 4_500];
        for side in [n % 2, 1 - n % 2] {
            let start = Instant::now();
            if side == 0 {
                log.append(checkpoint(Content::State(&mut state), Durability::Durable)).await?;
                ours.0.push(start.elapsed());
            } else {
                save(&temporary.join(n.to_string()), &target, n, &bytes)?;
                bare.0.push(start.elapsed());
            }
        }
    }
    log.close().await?;
    let (ours, bare) = (ours.quantile(0.5), bare.quantile(0.5));
    report("a durable save in a file store / bare write, sync, link, folder sync", &ratio(ours, bare), "1.5 x");
    report("  bare", &format!("{bare:.0} us"), "");
    store.close().await?;
    Ok(())
}

fn save(temporary: &FilePath, folder: &FilePath, n: usize, bytes: &[u8]) -> anyhow::Result<()> {
    let mut file = File::create(temporary)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    std::fs::hard_link(temporary, folder.join(n.to_string()))?;
    File::open(folder)?.sync_all()?;
    std::fs::remove_file(temporary)?;
    Ok(())
}
