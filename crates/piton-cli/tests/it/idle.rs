//! A run that waits for something costs nothing while it does.

use std::process::Stdio;
use std::time::Duration;

use crate::world::World;

/// The processor time that a process has used, in ticks of a hundredth of a second.
fn ticks(pid: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    // The name before it may have anything in it but is in brackets.
    let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
    fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
}

/// An idle run costs no CPU. It waits for a program; that it looks for orders once a second is all
/// that it may do, and that is far less than a tick.
#[test]
fn an_idle_run_costs_no_processor_time() {
    let world = World::new();
    world.write("flow.yml", "nodes:\n  - {id: in, data: {type: start}}\n  - {id: wait, data: {type: command, command: [sh, -c, 'touch began; exec sleep 600']}}\n  - {id: out, data: {type: end}}\nedges: [{source: in, target: wait}, {source: wait, target: out}]\n");
    let mut command = world.command(["run", "flow.yml", "--id", "a"]);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    while !world.work().join("began").exists() {
        std::thread::sleep(Duration::from_millis(20));
        assert!(child.try_wait().unwrap().is_none(), "it ended");
    }
    std::thread::sleep(Duration::from_millis(500));
    let before = ticks(child.id());
    std::thread::sleep(Duration::from_secs(4));
    let used = ticks(child.id()) - before;
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(used <= 4, "{used} ticks in four seconds");
}
