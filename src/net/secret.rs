//! What must never be seen: passwords, keys, tokens.
//!
//! A secret has no `Display`, its `Debug` is a mask, and its bytes are overwritten when it is dropped.

use std::fmt;
use std::sync::Arc;

use zeroize::Zeroizing;

/// A secret text or file content; cheap to clone.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Arc<Zeroizing<Vec<u8>>>);

impl Secret {
    /// Takes the bytes of a secret.
    pub fn new(bytes: impl Into<Vec<u8>>) -> Secret {
        Secret(Arc::new(Zeroizing::new(bytes.into())))
    }

    /// The bytes, for the one place that needs them.
    pub fn reveal(&self) -> &[u8] {
        &self.0
    }

    /// The text; what is no UTF-8 is replaced.
    pub fn reveal_text(&self) -> Zeroizing<String> {
        Zeroizing::new(String::from_utf8_lossy(&self.0).into_owned())
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[hidden]")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_never_printed() {
        let secret = Secret::new("s3cret");
        assert_eq!(format!("{secret:?} {:?}", Some(&secret)), "[hidden] Some([hidden])");
        assert_eq!(secret.reveal(), b"s3cret");
    }
}
