//! What of some stores is in use: the newest that could be used, and why that is not the newest there is.
//!
//! Invariant: once something could be used, something always is.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::StoreError;

/// See the module.
pub(super) struct InUse<L> {
    state: Mutex<State<L>>,
}

struct State<L> {
    loaded: Option<Arc<L>>,
    /// Why the newest stores are not in use.
    trouble: Option<StoreError>,
    /// Of the newest stores, whether they could be used or not.
    digest: Option<[u8; 32]>,
}

impl<L> Default for InUse<L> {
    fn default() -> InUse<L> {
        InUse { state: Mutex::new(State { loaded: None, trouble: None, digest: None }) }
    }
}

impl<L> InUse<L> {
    /// What is in use.
    pub(super) fn loaded(&self) -> Option<Arc<L>> {
        self.lock().loaded.clone()
    }

    /// Why the newest stores are not in use, if they are not.
    pub(super) fn trouble(&self) -> Option<StoreError> {
        self.lock().trouble.clone()
    }

    /// What is in use, if nothing has changed since these bytes were looked at.
    pub(super) fn unchanged(&self, digest: [u8; 32]) -> Option<Arc<L>> {
        let state = self.lock();
        state.loaded.clone().filter(|_| state.digest == Some(digest))
    }

    /// The newest stores cannot be read: what is in use stays so.
    pub(super) fn fall_back(&self, error: StoreError) -> Result<Arc<L>, StoreError> {
        let mut state = self.lock();
        let Some(loaded) = state.loaded.clone() else { return Err(error) };
        if state.trouble.is_none() {
            tracing::warn!(target: "kmirror::net", "the certificates read before stay in use: {error}");
        }
        state.digest = None;
        state.trouble = Some(error);
        Ok(loaded)
    }

    /// The newest stores, if they can be used. What could not be used once is not tried again until it changes.
    pub(super) fn take(
        &self,
        digest: [u8; 32],
        built: Result<Arc<L>, StoreError>,
    ) -> Result<Arc<L>, StoreError> {
        match built {
            Ok(loaded) => {
                *self.lock() = State { loaded: Some(loaded.clone()), trouble: None, digest: Some(digest) };
                Ok(loaded)
            }
            Err(error) => {
                let loaded = self.fall_back(error)?;
                self.lock().digest = Some(digest);
                Ok(loaded)
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State<L>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
