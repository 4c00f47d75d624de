//! Who is answered by the admin listener (RFC 6750, RFC 7617).
//!
//! What is shown is compared by its digest and in constant time, so that nobody learns a token letter by letter. The file is read
//! for each question: whoever replaces it needs no restart, and a file that is gone lets nobody in.

use aws_lc_rs::{constant_time, digest};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use zeroize::Zeroizing;

use super::settings::Access;
use crate::seam::Seam;

const FILE_BYTES_MAX: u64 = 64 * 1024;

/// Whether somebody is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    LetIn,
    /// With this in `www-authenticate`.
    Refused(&'static str),
}

/// Judges what stands in the header `authorization`.
pub(super) async fn judge(seam: &Seam, access: &Access, authorization: Option<&[u8]>) -> Verdict {
    let (path, challenge) = match access {
        Access::Anybody => return Verdict::LetIn,
        Access::Bearer(path) => (path, "Bearer realm=\"kmirror\""),
        Access::Basic(path) => (path, "Basic realm=\"kmirror\", charset=\"UTF-8\""),
    };
    let Some(shown) = authorization.and_then(|header| shown(access, header)) else {
        return Verdict::Refused(challenge);
    };
    let known = match seam.read_file(path.clone(), FILE_BYTES_MAX).await {
        Ok(known) => Zeroizing::new(known),
        Err(error) => {
            tracing::warn!(path = %path.display(), %error, "nobody is let in to the admin listener: its file cannot be read");
            return Verdict::Refused(challenge);
        }
    };
    if is_known(&known, &shown) { Verdict::LetIn } else { Verdict::Refused(challenge) }
}

/// A token, or `user:password`.
fn shown(access: &Access, header: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
    let text = str::from_utf8(header).ok()?;
    let (scheme, rest) = text.trim().split_once(' ')?;
    let rest = rest.trim();
    match access {
        Access::Bearer(_) if scheme.eq_ignore_ascii_case("bearer") => Some(Zeroizing::new(rest.into())),
        Access::Basic(_) if scheme.eq_ignore_ascii_case("basic") => {
            STANDARD.decode(rest).ok().map(Zeroizing::new)
        }
        _ => None,
    }
}

/// Whether a line of the file is what is shown; all lines are looked at.
fn is_known(file: &[u8], shown: &[u8]) -> bool {
    let digest_of = |bytes: &[u8]| digest::digest(&digest::SHA256, bytes);
    let shown = digest_of(shown);
    let lines = file.split(|&byte| byte == b'\n').map(<[u8]>::trim_ascii);
    let lines = lines.filter(|line| !line.is_empty() && !line.starts_with(b"#"));
    lines.fold(false, |found, line| {
        found | constant_time::verify_slices_are_equal(digest_of(line).as_ref(), shown.as_ref()).is_ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn whoever_shows_a_line_of_the_file_is_let_in() {
        let folder = tempfile::tempdir().unwrap();
        let seam = Seam::real();
        let (tokens, users) = (folder.path().join("tokens"), folder.path().join("users"));
        std::fs::write(&tokens, "# ours\nt0ken-1\n\nt0ken-2\r\n").unwrap();
        std::fs::write(&users, "prometheus:s3:cret\n").unwrap();
        let (bearer, basic) = (Access::Bearer(tokens), Access::Basic(users));
        let encoded = |pair: &str| format!("Basic {}", STANDARD.encode(pair));
        for (access, header, is_let_in) in [
            (&Access::Anybody, None, true),
            (&bearer, Some("Bearer t0ken-1".to_owned()), true),
            (&bearer, Some("bearer  t0ken-2".to_owned()), true),
            (&bearer, Some("Bearer t0ken-".to_owned()), false),
            (&bearer, Some("Bearer # ours".to_owned()), false),
            (&bearer, Some("Bearer ".to_owned()), false),
            (&bearer, Some(encoded("t0ken-1")), false),
            (&bearer, None, false),
            (&basic, Some(encoded("prometheus:s3:cret")), true),
            (&basic, Some(encoded("prometheus:")), false),
            (&basic, Some("Basic !".to_owned()), false),
            (&basic, Some("Bearer prometheus:s3:cret".to_owned()), false),
            (&Access::Bearer("/none".into()), Some("Bearer t0ken-1".to_owned()), false),
        ] {
            let verdict = judge(&seam, access, header.as_deref().map(str::as_bytes)).await;
            assert_eq!(verdict == Verdict::LetIn, is_let_in, "{access:?} {header:?}");
        }
    }
}
