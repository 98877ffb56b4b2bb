//! Which system calls code and programs in a sandbox may make. For code, what isn't listed answers `ENOSYS`, so that a library falls back to
//! an older call; a list of what is forbidden would let through whatever the next kernel brings.
//!
//! Left out on purpose: sockets of every kind, new processes (threads are fine), signals to others,
//! tracing, namespaces, mounts, keys, `io_uring` (which could open sockets behind our back), `prctl`
//! (which could take back that it dies with us), shared memory that outlives it, and changes of modes,
//! owners and times of files, which Landlock doesn't cover.

use std::collections::BTreeMap;
use std::env::consts::ARCH;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
};

macro_rules! calls {
    ($($name:ident)*) => { [$(libc::$name),*] };
}

/// On every machine.
const ALLOWED: &[libc::c_long] = &calls! {
    SYS_read SYS_write SYS_readv SYS_writev SYS_pread64 SYS_pwrite64 SYS_preadv SYS_pwritev SYS_lseek
    SYS_openat SYS_close SYS_close_range SYS_fstat SYS_newfstatat SYS_statx SYS_statfs SYS_fstatfs
    SYS_faccessat SYS_faccessat2 SYS_readlinkat SYS_getdents64 SYS_getcwd SYS_chdir SYS_fchdir SYS_umask
    SYS_mkdirat SYS_unlinkat SYS_renameat2 SYS_linkat SYS_symlinkat SYS_truncate SYS_ftruncate SYS_fallocate
    SYS_fsync SYS_fdatasync SYS_flock SYS_fadvise64 SYS_copy_file_range SYS_sendfile
    SYS_dup SYS_dup3 SYS_pipe2 SYS_fcntl SYS_ioctl SYS_eventfd2 SYS_timerfd_create SYS_timerfd_settime
    SYS_timerfd_gettime SYS_epoll_create1 SYS_epoll_ctl SYS_epoll_pwait SYS_ppoll SYS_pselect6
    SYS_mmap SYS_mprotect SYS_munmap SYS_mremap SYS_madvise SYS_msync SYS_mincore SYS_brk SYS_membarrier
    SYS_rt_sigaction SYS_rt_sigprocmask SYS_rt_sigreturn SYS_rt_sigpending SYS_rt_sigsuspend
    SYS_rt_sigtimedwait SYS_sigaltstack SYS_restart_syscall
    SYS_futex SYS_set_robust_list SYS_get_robust_list SYS_set_tid_address SYS_rseq SYS_sched_yield
    SYS_sched_getaffinity SYS_sched_getparam SYS_sched_getscheduler SYS_sched_get_priority_max
    SYS_sched_get_priority_min SYS_getcpu SYS_gettid SYS_getpid SYS_getppid SYS_getpgid SYS_getsid
    SYS_getuid SYS_geteuid SYS_getgid SYS_getegid SYS_getgroups SYS_getresuid SYS_getresgid SYS_capget
    SYS_clock_gettime SYS_clock_getres SYS_clock_nanosleep SYS_nanosleep SYS_gettimeofday SYS_times
    SYS_getitimer SYS_setitimer SYS_timer_create SYS_timer_settime SYS_timer_gettime SYS_timer_delete
    SYS_getrusage SYS_getrlimit SYS_getrandom SYS_uname SYS_sysinfo SYS_wait4 SYS_waitid
    SYS_execve SYS_exit SYS_exit_group
};

/// Older calls that only this machine has.
#[cfg(target_arch = "x86_64")]
const OLDER: &[libc::c_long] = &calls! {
    SYS_open SYS_creat SYS_stat SYS_lstat SYS_access SYS_readlink SYS_getdents SYS_mkdir SYS_rmdir SYS_unlink
    SYS_rename SYS_link SYS_symlink SYS_dup2 SYS_pipe SYS_eventfd SYS_epoll_create SYS_epoll_wait SYS_poll
    SYS_select SYS_time SYS_alarm SYS_pause SYS_getpgrp SYS_arch_prctl
};
#[cfg(not(target_arch = "x86_64"))]
const OLDER: &[libc::c_long] = &[];

/// Memory that no limit of a process covers: files of memory, shared memory, and file systems that a program could mount in
/// a user namespace of its own.
const UNCOUNTED: &[libc::c_long] = &calls! {
    SYS_memfd_create SYS_memfd_secret SYS_shmget SYS_mount SYS_fsopen SYS_fsmount SYS_move_mount SYS_open_tree
};

/// The filter for code, which can be installed.
pub(super) fn filter() -> Result<BpfProgram, String> {
    let said = |error: seccompiler::BackendError| error.to_string();
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> =
        ALLOWED.iter().chain(OLDER).map(|call| (*call, Vec::new())).collect();
    // A thread, not a process; `clone3`, whose flags a filter can't see, isn't there.
    let thread = u64::try_from(libc::CLONE_THREAD).map_err(|error| error.to_string())?;
    let is_thread = condition(0, SeccompCmpOp::MaskedEq(thread), thread)?;
    rules.insert(libc::SYS_clone, vec![SeccompRule::new(vec![is_thread]).map_err(said)?]);
    // Its own limits, not those of others.
    let itself = condition(0, SeccompCmpOp::Eq, 0)?;
    rules.insert(libc::SYS_prlimit64, vec![SeccompRule::new(vec![itself]).map_err(said)?]);
    compile(rules, missing()?, SeccompAction::Allow)
}

/// The filter for programs, which need more of the system than a list of what is allowed can foresee.
pub(super) fn filter_for_programs() -> Result<BpfProgram, String> {
    compile(UNCOUNTED.iter().map(|call| (*call, Vec::new())).collect(), SeccompAction::Allow, missing()?)
}

fn missing() -> Result<SeccompAction, String> {
    u32::try_from(libc::ENOSYS).map(SeccompAction::Errno).map_err(|error| error.to_string())
}

fn compile(
    rules: BTreeMap<i64, Vec<SeccompRule>>,
    otherwise: SeccompAction,
    listed: SeccompAction,
) -> Result<BpfProgram, String> {
    let said = |error: seccompiler::BackendError| error.to_string();
    let machine = ARCH.try_into().map_err(said)?;
    SeccompFilter::new(rules, otherwise, listed, machine).and_then(TryInto::try_into).map_err(said)
}

fn condition(argument: u8, compare: SeccompCmpOp, value: u64) -> Result<SeccompCondition, String> {
    SeccompCondition::new(argument, SeccompCmpArgLen::Qword, compare, value).map_err(|error| error.to_string())
}

/// A filter as the kernel lays it out, for bubblewrap to install.
pub(super) fn bytes(filter: &BpfProgram) -> Vec<u8> {
    let instruction = |i: &seccompiler::sock_filter| {
        let mut bytes = Vec::with_capacity(8);
        bytes.extend_from_slice(&i.code.to_ne_bytes());
        bytes.extend_from_slice(&[i.jt, i.jf]);
        bytes.extend_from_slice(&i.k.to_ne_bytes());
        bytes
    };
    filter.iter().flat_map(instruction).collect()
}
