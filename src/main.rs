//! The `kmirror` binary: the command line of the library.
//!
//! It keeps the system's allocator: slabs and merged batches are used again, and beside them little is allocated. With
//! mimalloc the same copy took as much CPU and twice the memory.

use std::process::ExitCode;

fn main() -> ExitCode {
    kmirror::cli::main()
}
