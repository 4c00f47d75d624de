//! What the admin listener needs to know.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};

/// Settings of this room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// `kmirror.admin.listen`.
    pub admin_listen: AdminListen,
}

/// Where `/metrics` and its like are served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdminListen {
    /// Nowhere.
    Off,
    /// At [`AdminListen::DEFAULT`], or on a free port when that one is taken.
    Default,
    /// At an address that the user chose: it is an error when it is taken.
    Named(SocketAddr),
}

impl AdminListen {
    /// Where it listens unless the user says otherwise.
    pub const DEFAULT: SocketAddr = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 9464));
}

impl Default for Settings {
    fn default() -> Settings {
        Settings { admin_listen: AdminListen::Default }
    }
}
