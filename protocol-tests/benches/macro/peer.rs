//! What waking up costs on this machine: a process that does nothing else, beside which an idle mirror is held.
//!
//! It is this program once more. So many times a second it wakes up by a timer, writes a hundred bytes over loopback, and
//! wakes up again when they come back.

use protocol_tests::process::{Program, ScratchFolder, Supervised, Usage};
use protocol_tests::{HarnessError, Result};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

const ARGUMENT: &str = "--wake";
const BYTES: usize = 100;

/// Runs as the peer when the command line asks for it.
pub(crate) fn wanted() -> Option<Result<()>> {
    let mut arguments = std::env::args().skip(1);
    if arguments.next()? != ARGUMENT {
        return None;
    }
    let (address, microseconds) = (arguments.next()?.parse().ok()?, arguments.next()?.parse().ok()?);
    Some(
        wake(address, Duration::from_micros(microseconds))
            .map_err(|error| HarnessError::Io { what: "the peer".to_owned(), source: error }),
    )
}

fn wake(address: SocketAddr, pause: Duration) -> io::Result<()> {
    let mut socket = TcpStream::connect(address)?;
    let mut bytes = [0; BYTES];
    loop {
        std::thread::sleep(pause);
        socket.write_all(&bytes)?;
        socket.read_exact(&mut bytes)?;
    }
}

/// Processor time of a peer that wakes up `per_second` times, as a share of a core, over `time`.
pub(crate) fn share_of_a_core(per_second: f64, time: Duration) -> Result<f64> {
    let failed = |error| HarnessError::Io { what: "the peer".to_owned(), source: error };
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    // Two wake-ups for each pause.
    let pause = Duration::from_secs_f64(2.0 / per_second.max(0.1));
    let program = Program::new(std::env::current_exe().map_err(failed)?).args([
        ARGUMENT.to_owned(),
        address.to_string(),
        pause.as_micros().to_string(),
    ]);
    let folder = ScratchFolder::new("peer")?;
    let peer = Supervised::start("the peer", program, &folder.path().join("log"))?;
    let (mut socket, _) = listener.accept().map_err(failed)?;
    std::thread::spawn(move || {
        let mut bytes = [0; BYTES];
        while socket.read_exact(&mut bytes).is_ok() && socket.write_all(&bytes).is_ok() {}
    });
    std::thread::sleep(time / 4);
    let before = Usage::of(peer.pid())?;
    std::thread::sleep(time);
    let after = Usage::of(peer.pid())?;
    Ok((after.cpu - before.cpu).as_secs_f64() / time.as_secs_f64())
}
