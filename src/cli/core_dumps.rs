//! No core dumps: a process that dies leaves passwords, keys and records of others in no file.
//!
//! The limit alone does not keep a handler from getting one that is named in `core_pattern`; that the process is not dumpable
//! does, and keeps other processes of the same user from reading its memory as well. Whoever hunts a crash sets `KMIRROR_CORE_DUMPS=1`.

use rustix::process::{DumpableBehavior, Resource, Rlimit, set_dumpable_behavior, setrlimit};

const ALLOWED: &str = "KMIRROR_CORE_DUMPS";

/// Forbids core dumps of this process. What the system does not let us do is no reason to end.
pub(super) fn forbid() {
    if std::env::var_os(ALLOWED).is_some_and(|value| value == "1") {
        return;
    }
    let _ = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) });
    let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
}

#[cfg(test)]
mod tests {
    use rustix::process::{dumpable_behavior, getrlimit};

    use super::*;

    #[test]
    fn a_process_leaves_no_core() {
        forbid();
        assert_eq!(getrlimit(Resource::Core), Rlimit { current: Some(0), maximum: Some(0) });
        assert_eq!(dumpable_behavior().unwrap(), DumpableBehavior::NotDumpable);
    }
}
