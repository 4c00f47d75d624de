//! Pages of the program itself that only its start needed, given back.
//!
//! Starting touches most of the program: parsing, connecting, negotiating, creating topics. The system maps its pages by the
//! dozen and keeps them mapped, and on a machine with little memory they are most of what an idle mirror holds. They are in
//! the file, so that what is used again is mapped again.

use std::io;

/// Gives back what is mapped of the program's file and has not been changed. Where the system does not say what that is,
/// nothing is done.
pub(super) fn give_back() {
    #[cfg(target_os = "linux")]
    if let (Ok(text), Ok(program)) =
        (std::fs::read_to_string("/proc/self/smaps"), std::fs::read_link("/proc/self/exe"))
    {
        for range in unchanged(&text, &program.to_string_lossy()) {
            if let Err(error) = drop_pages(range) {
                tracing::debug!(target: "kmirror::memory", %error, "pages of the program stay mapped");
            }
        }
    }
}

/// The ranges of addresses at which a file is mapped privately, unwritable, and without a page that differs from the file
/// (relocated ones do), by what `/proc/self/smaps` says (proc_pid_smaps(5)).
fn unchanged(smaps: &str, file: &str) -> Vec<(usize, usize)> {
    let mut found = Vec::new();
    let mut candidate = None;
    for line in smaps.lines() {
        if let Some(range) = mapping(line) {
            let fields: Vec<&str> = line.split_ascii_whitespace().collect();
            let is_ours =
                line.ends_with(file) && fields.get(5) == file.split_ascii_whitespace().next().as_ref();
            let is_fixed = matches!(fields.get(1), Some(&("r--p" | "r-xp")));
            candidate = (is_ours && is_fixed).then_some(range);
        } else if let Some(rest) = line.strip_prefix("Anonymous:")
            && rest.split_ascii_whitespace().next() == Some("0")
        {
            found.extend(candidate.take());
        }
    }
    found
}

/// `55c512434000-55c513207000 r-xp …`
fn mapping(line: &str) -> Option<(usize, usize)> {
    let (start, end) = line.split_ascii_whitespace().next()?.split_once('-')?;
    let address = |text: &str| usize::from_str_radix(text, 16).ok();
    Some((address(start)?, address(end)?)).filter(|(start, end)| start < end)
}

#[cfg(target_os = "linux")]
#[expect(unsafe_code, reason = "madvise is the only way to say it")]
fn drop_pages((start, end): (usize, usize)) -> io::Result<()> {
    use rustix::mm::{Advice, madvise};
    let address = std::ptr::with_exposed_provenance_mut(start);
    // SAFETY: nothing can be written there and nothing was changed, so that each page is read from the file again with what
    // it has now.
    Ok(unsafe { madvise(address, end - start, Advice::LinuxDontNeed) }?)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMAPS: &str = "\
5500-5600 r--p 00000000 fe:00 7          /opt/kmirror\nRss:   100 kB\nAnonymous:             0 kB\nTHPeligible: 0\n\
5600-5900 r-xp 00001000 fe:00 7          /opt/kmirror\nRss:   200 kB\nAnonymous:             0 kB\n\
5900-5a00 r--p 00004000 fe:00 7          /opt/kmirror\nRss:   40 kB\nAnonymous:            40 kB\n\
5a00-5b00 rw-p 00005000 fe:00 7          /opt/kmirror\nRss:   4 kB\nAnonymous:             0 kB\n\
5b00-5c00 rw-p 00000000 00:00 0          [heap]\nRss:   4 kB\nAnonymous:             4 kB\n\
7f00-7f10 r-xp 00000000 fe:00 8          /lib/libc.so.6\nAnonymous:             0 kB\n\
7f10-7f20 r-xp 00000000 fe:00 9          /other/opt/kmirror\nAnonymous:             0 kB\n";

    #[test]
    fn only_what_the_file_has_is_given_back() {
        assert_eq!(unchanged(SMAPS, "/opt/kmirror"), [(0x5500, 0x5600), (0x5600, 0x5900)]);
        for text in [
            "",
            "Anonymous: 0 kB",
            "zz-yy r-xp 0 0 0 /opt/kmirror\nAnonymous: 0 kB",
            "9-5 r-xp 0 0 0 /opt/kmirror",
        ] {
            assert_eq!(unchanged(text, "/opt/kmirror"), []);
        }
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_program_goes_on_without_its_pages() {
        let resident = || -> u64 {
            let status = std::fs::read_to_string("/proc/self/status").unwrap();
            let line = status.lines().find_map(|line| line.strip_prefix("RssFile:")).unwrap();
            line.split_ascii_whitespace().next().unwrap().parse().unwrap()
        };
        // All of the program is read once, so that it is mapped.
        let program = std::fs::read_link("/proc/self/exe").unwrap();
        let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let ranges = unchanged(&smaps, &program.to_string_lossy());
        assert!(!ranges.is_empty(), "{smaps}");
        let before = resident();
        give_back();
        let after = resident();
        assert!(after < before, "{before} kB, then {after} kB");
        assert_eq!(unchanged(SMAPS, "/opt/kmirror").len(), 2, "it still runs");
    }
}
