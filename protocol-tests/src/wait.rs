//! Waiting for conditions instead of sleeping for luck.

use crate::{HarnessError, Result};
use std::fmt::Debug;
use std::time::{Duration, Instant};

const PAUSE: Duration = Duration::from_millis(50);

/// What a look at a condition found.
pub enum Look<T> {
    /// The condition holds.
    Done(T),
    /// Not yet; the text says what was seen and is shown when time runs out.
    Pending(String),
}

/// Looks again and again until the condition holds. An error of `look` ends the wait at once.
pub fn wait_for<T>(what: &str, timeout: Duration, mut look: impl FnMut() -> Result<Look<T>>) -> Result<T> {
    let end = Instant::now() + timeout;
    loop {
        match look()? {
            Look::Done(value) => return Ok(value),
            Look::Pending(seen) if Instant::now() >= end => {
                return Err(HarnessError::Timeout { what: what.to_owned(), seen });
            }
            Look::Pending(_) => std::thread::sleep(PAUSE),
        }
    }
}

/// Waits until `read` gives `wanted`.
pub fn wait_until_equal<T: PartialEq + Debug>(
    what: &str,
    timeout: Duration,
    wanted: &T,
    mut read: impl FnMut() -> Result<T>,
) -> Result<()> {
    wait_for(what, timeout, || {
        let seen = read()?;
        Ok(if seen == *wanted {
            Look::Done(())
        } else {
            Look::Pending(format!("{seen:?}, wanted {wanted:?}"))
        })
    })
}
