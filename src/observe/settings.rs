//! What the admin listener needs to know.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::path::PathBuf;
use std::sync::Arc;

use crate::net::tls::ServerTls;

/// Settings of this room.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// `kmirror.admin.listen`.
    pub admin_listen: AdminListen,
    /// Who is answered.
    pub access: Access,
    /// `kmirror.admin.ssl.*`.
    pub tls: Option<Arc<ServerTls>>,
}

/// Who is answered; `/healthz` answers everybody.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Access {
    /// Whoever can reach the port.
    #[default]
    Anybody,
    /// `kmirror.admin.bearer.token.file`: whoever shows one of its tokens, one a line. It is read for each question.
    Bearer(PathBuf),
    /// `kmirror.admin.basic.users.file`: whoever is one of its users, `user:password` a line. It is read for each question.
    Basic(PathBuf),
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
        Settings { admin_listen: AdminListen::Default, access: Access::Anybody, tls: None }
    }
}
