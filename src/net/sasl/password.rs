//! Passwords that a provider gives: read anew for each authentication, so that a new password, or the next delegation token,
//! needs no restart. While it cannot be read, the last one serves.

use std::fmt;
use std::sync::{Mutex, PoisonError};

use super::Password;

/// Reads a password anew; `None` when it cannot be read.
pub type ReadPassword = dyn Fn() -> Option<Password> + Send + Sync;

/// A password from outside.
pub struct PasswordSource {
    state: Mutex<State>,
    read: Box<ReadPassword>,
}

struct State {
    last: Password,
    /// Whether it has been told that it cannot be read.
    is_trouble_told: bool,
}

impl PasswordSource {
    /// With what was read first, and how to read it again.
    pub fn new(first: Password, read: Box<ReadPassword>) -> PasswordSource {
        PasswordSource { state: Mutex::new(State { last: first, is_trouble_told: false }), read }
    }

    /// The last one that was read.
    pub fn last(&self) -> Password {
        self.lock().last.clone()
    }

    /// Reads it anew; this may block.
    pub fn read(&self) -> Password {
        let found = (self.read)();
        let mut state = self.lock();
        match found {
            Some(password) => *state = State { last: password, is_trouble_told: false },
            None if state.is_trouble_told => {}
            None => {
                state.is_trouble_told = true;
                tracing::warn!(target: "kmirror::net", username = %state.last.username, "a password cannot be read anew: the last one stays in use");
            }
        }
        state.last.clone()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for PasswordSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PasswordSource").field("last", &self.last()).finish_non_exhaustive()
    }
}

impl PartialEq for PasswordSource {
    fn eq(&self, other: &PasswordSource) -> bool {
        self.last() == other.last()
    }
}

impl Eq for PasswordSource {}

#[cfg(test)]
mod tests {
    use super::super::PasswordKind;
    use super::*;
    use crate::net::Secret;

    #[test]
    fn the_newest_password_serves_and_the_last_one_where_there_is_none() {
        let password = |text: &str| Password {
            username: "me".to_owned(),
            password: Secret::new(text),
            kind: PasswordKind::User,
        };
        let answers = Mutex::new(vec![None, Some(password("two")), None]);
        let read = Box::new(move || answers.lock().unwrap().pop().flatten());
        let source = PasswordSource::new(password("one"), read);
        let read = || source.read().password.reveal().to_vec();
        assert_eq!((read(), read(), read()), (b"one".to_vec(), b"two".to_vec(), b"two".to_vec()));
        assert!(!format!("{source:?}").contains("two"));
    }
}
