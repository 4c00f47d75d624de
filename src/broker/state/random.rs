//! Ids under a seed (splitmix64).

use uuid::Uuid;

const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
const BASE64_URL: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// A generator of ids; the same seed gives the same ones.
#[derive(Debug)]
pub(super) struct Random {
    state: u64,
}

impl Random {
    pub(super) fn new(seed: u64) -> Random {
        Random { state: seed }
    }

    pub(super) fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(GOLDEN);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A random id of version 4, never one of Kafka's reserved ones.
    pub(super) fn uuid(&mut self) -> Uuid {
        let bits = (u128::from(self.next()) << 64) | u128::from(self.next());
        uuid::Builder::from_random_bytes(bits.to_be_bytes()).into_uuid()
    }

    /// A cluster id as Kafka makes it: 16 bytes in URL-safe base 64, 22 characters.
    pub(super) fn base64_id(&mut self) -> String {
        let bits = (u128::from(self.next()) << 64) | u128::from(self.next());
        (0..22).map(|at| char::from(BASE64_URL[((bits >> (at * 6)) & 63) as usize])).collect()
    }

    /// A positive number, for fetch sessions.
    pub(super) fn positive(&mut self) -> i32 {
        ((self.next() >> 33) as i32).max(1)
    }
}
