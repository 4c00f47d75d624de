//! The `kmirror` binary: an allocator, and the command line of the library.

use std::process::ExitCode;

/// Slabs and requests come and go in megabytes, for which the system's allocator returns and faults in pages each time.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    kmirror::cli::main()
}
