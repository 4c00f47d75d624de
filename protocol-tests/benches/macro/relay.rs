//! The limit: a relay that only moves bytes. Files go in by `sendfile`, the relay reads and writes a megabyte at a
//! time between two sockets, and files come out. Only the relay's own processor time counts.

use protocol_tests::{HarnessError, Result};
use std::fs::File;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::thread;

const CHUNK_BYTES: usize = 1 << 20;

/// MB per second of the relay's processor time, for the bytes of these files.
pub(crate) fn megabytes_per_cpu_second(files: &[PathBuf]) -> Result<f64> {
    let (bytes, nanoseconds) =
        relay(files).map_err(|source| HarnessError::Io { what: "the plain relay".to_owned(), source })?;
    Ok(bytes as f64 / 1e6 / (nanoseconds as f64 / 1e9))
}

fn relay(files: &[PathBuf]) -> std::io::Result<(u64, u64)> {
    let (source, target) =
        (TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?, TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?);
    let (source_address, target_address) = (source.local_addr()?, target.local_addr()?);
    thread::scope(|scope| {
        let sender = scope.spawn(move || -> std::io::Result<()> {
            let (socket, _) = source.accept()?;
            for path in files {
                send_file(&File::open(path)?, &socket)?;
            }
            Ok(())
        });
        let receiver = scope.spawn(move || -> std::io::Result<u64> {
            let (mut socket, _) = target.accept()?;
            pass_on(&mut socket, &mut tempfile::tempfile()?)
        });
        let relay = scope.spawn(move || -> std::io::Result<u64> {
            let before = cpu_nanoseconds()?;
            let (mut from, mut to) =
                (TcpStream::connect(source_address)?, TcpStream::connect(target_address)?);
            pass_on(&mut from, &mut to)?;
            Ok(cpu_nanoseconds()? - before)
        });
        let ended = || std::io::Error::other("a thread of the relay panicked");
        let nanoseconds = relay.join().map_err(|_| ended())??;
        sender.join().map_err(|_| ended())??;
        Ok((receiver.join().map_err(|_| ended())??, nanoseconds))
    })
}

/// `sendfile` by name: `std::io::copy` copies such bytes through a buffer, and a reader finds them in the cache.
fn send_file(file: &File, socket: &TcpStream) -> std::io::Result<()> {
    while rustix::fs::sendfile(socket, file, None, 1 << 30)? > 0 {}
    Ok(())
}

fn pass_on(from: &mut impl Read, to: &mut impl Write) -> std::io::Result<u64> {
    let mut chunk = vec![0; CHUNK_BYTES];
    let mut bytes = 0;
    loop {
        match from.read(&mut chunk)? {
            0 => return Ok(bytes),
            count => {
                to.write_all(&chunk[..count])?;
                bytes += count as u64;
            }
        }
    }
}

/// Processor time of this thread: the first number of its `schedstat`.
fn cpu_nanoseconds() -> std::io::Result<u64> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat")?;
    let number = text.split_whitespace().next().and_then(|number| number.parse().ok());
    number.ok_or_else(|| std::io::Error::other("no schedstat"))
}
