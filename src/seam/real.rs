//! The real side of the seam: TCP, the system's clock, a generator seeded by the system.

use std::hash::{BuildHasher, Hasher};
use std::io::{self, Read};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpSocket, TcpStream};

use super::SocketOptions;

/// Silence on a connection after which the kernel probes the peer; finds a peer that vanished without a word.
const KEEPALIVE_TIME: Duration = Duration::from_secs(60);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);

/// State of the real seam.
#[derive(Debug)]
pub struct Real {
    counter: AtomicU64,
}

impl Real {
    pub(super) fn new() -> Real {
        let seed = std::collections::hash_map::RandomState::new().build_hasher().finish();
        Real { counter: AtomicU64::new(seed) }
    }

    pub(super) fn random(&self) -> u64 {
        mix(self.counter.fetch_add(GOLDEN, Ordering::Relaxed).wrapping_add(GOLDEN))
    }
}

/// The increment of splitmix64.
pub(super) const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// The output function of splitmix64.
pub(super) fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

pub(super) fn now_ms() -> i64 {
    let elapsed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    i64::try_from(elapsed.as_millis()).unwrap_or(i64::MAX)
}

/// No more than `bytes_max` is read, whatever kind of file it is.
pub(super) fn read_file(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    std::fs::File::open(path)?.take(bytes_max).read_to_end(&mut bytes)?;
    Ok(bytes)
}

pub(super) async fn dial(address: SocketAddr, options: SocketOptions) -> io::Result<TcpStream> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    if let Some(bytes) = options.send_buffer_bytes {
        socket.set_send_buffer_size(u32::try_from(bytes).unwrap_or(u32::MAX))?;
    }
    if let Some(bytes) = options.receive_buffer_bytes {
        socket.set_recv_buffer_size(u32::try_from(bytes).unwrap_or(u32::MAX))?;
    }
    let stream = socket.connect(address).await?;
    stream.set_nodelay(true)?;
    let keepalive = TcpKeepalive::new().with_time(KEEPALIVE_TIME).with_interval(KEEPALIVE_INTERVAL);
    SockRef::from(&stream).set_tcp_keepalive(&keepalive)?;
    Ok(stream)
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    /// What the kernel says of a connection, not what it was asked for.
    #[tokio::test]
    async fn a_connection_probes_a_silent_peer_and_sends_at_once() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            // A machine may be without IPv6.
            let Ok(listener) = TcpListener::bind(address).await else { continue };
            let options =
                SocketOptions { send_buffer_bytes: Some(32_768), receive_buffer_bytes: Some(65_536) };
            let stream = dial(listener.local_addr().unwrap(), options).await.unwrap();
            let socket = SockRef::from(&stream);
            assert!(socket.keepalive().unwrap(), "{address}");
            assert_eq!(socket.tcp_keepalive_time().unwrap(), KEEPALIVE_TIME);
            assert_eq!(socket.tcp_keepalive_interval().unwrap(), KEEPALIVE_INTERVAL);
            assert!(socket.tcp_nodelay().unwrap());
            // Linux keeps its own books in as much again.
            assert!((32_768..=65_536).contains(&socket.send_buffer_size().unwrap()));
            assert!((65_536..=131_072).contains(&socket.recv_buffer_size().unwrap()));
        }
    }
}
