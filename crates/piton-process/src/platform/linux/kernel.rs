//! Landlock for files, seccomp for everything else, resource limits. All are set between fork and exec,
//! so that the program never runs an instruction without them.
//!
//! Landlock doesn't hide that a file exists, nor its size and times; and seccomp closes the network by
//! closing sockets of every kind, so a network namespace would add nothing.

use std::io;

use landlock::{
    ABI, Access, AccessFs, AccessNet, CompatLevel, Compatible, Ruleset, RulesetAttr, RulesetCreated,
    RulesetCreatedAttr, RulesetError, Scope, path_beneath_rules,
};
use tokio::process::Command;

use super::limits::{ResourceLimits, drop_root};
use super::seccomp;
use super::start::prepare;
use crate::job::Job;
use crate::sandbox::Sandbox;

/// What is handled if the kernel knows it; the first version is demanded.
const NEWEST: ABI = ABI::V6;

pub(super) fn command(sandbox: &Sandbox, job: &Job) -> Result<Command, String> {
    if sandbox.processes {
        return Err("a program that starts others needs a process namespace".to_owned());
    }
    let rules = ruleset(sandbox).map_err(|error| error.to_string())?;
    let filter = seccomp::filter()?;
    let limits = ResourceLimits::from(job.limits);
    let mut command = Command::new(&job.program);
    prepare(&mut command);
    command.args(&job.arguments).env_clear().envs(&job.environment);
    command.current_dir(job.folder.as_deref().unwrap_or_else(|| "/".as_ref()));
    drop_root(&mut command);
    confine(&mut command, rules, filter, limits);
    Ok(command)
}

#[expect(unsafe_code, reason = "only between fork and exec can a child restrict itself alone")]
fn confine(command: &mut Command, rules: RulesetCreated, filter: seccompiler::BpfProgram, limits: ResourceLimits) {
    let mut rules = Some(rules);
    let refused = || io::Error::from_raw_os_error(libc::EPERM);
    let shut_in = move || {
        limits.apply()?;
        let rules = rules.take().ok_or_else(refused)?;
        rules.restrict_self().map_err(|_| refused())?;
        seccompiler::apply_filter(&filter).map_err(|_| refused())
    };
    // SAFETY: the closure runs in the forked child, where only async-signal-safe calls are allowed. Rules
    // and filter were made before the fork; here are system calls only. On success nothing allocates or
    // frees heap memory: the rules are one descriptor, which is closed.
    unsafe {
        command.pre_exec(shut_in);
    }
}

fn ruleset(sandbox: &Sandbox) -> Result<RulesetCreated, RulesetError> {
    let (read, all) = (AccessFs::from_read(NEWEST), AccessFs::from_all(NEWEST));
    base()?
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(all)?
        .handle_access(AccessNet::from_all(NEWEST))?
        .scope(Scope::from_all(NEWEST))?
        .create()?
        .add_rules(path_beneath_rules(&sandbox.read, read))?
        .add_rules(path_beneath_rules(&sandbox.write, all))?
        .add_rules(path_beneath_rules(
            ["/dev/null", "/dev/zero", "/dev/urandom", "/dev/random"],
            read | AccessFs::WriteFile,
        ))
}

/// What a kernel must have.
fn base() -> Result<Ruleset, RulesetError> {
    Ruleset::default().set_compatibility(CompatLevel::HardRequirement).handle_access(AccessFs::from_all(ABI::V1))
}

/// Whether the kernel has both.
pub(super) fn works() -> Result<(), String> {
    base().and_then(Ruleset::create).map_err(|error| error.to_string())?;
    seccomp::filter().map(drop)
}
