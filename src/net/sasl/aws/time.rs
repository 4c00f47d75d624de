//! Times as AWS writes them.

/// `20130524T000000Z`.
pub(super) fn amz_date(ms: i64) -> String {
    let (days, seconds) = (ms.div_euclid(86_400_000), ms.div_euclid(1_000).rem_euclid(86_400));
    let (year, month, day) = crate::net::tls::civil(days);
    format!("{year:04}{month:02}{day:02}T{:02}{:02}{:02}Z", seconds / 3_600, seconds / 60 % 60, seconds % 60)
}

/// Milliseconds since the epoch of `2013-05-24T00:00:00Z`, fractions of seconds aside; `None` for anything else.
pub(super) fn parse_date(text: &str) -> Option<i64> {
    let (date, time) = text.trim().strip_suffix('Z')?.split_once('T')?;
    let [year, month, day] = numbers(date, '-')?;
    let [hour, minute, second] = numbers(time.split('.').next()?, ':')?;
    let is_sound = (1..=12).contains(&month) && (1..=31).contains(&day) && hour < 24 && minute < 60;
    if !is_sound || second > 60 || year > 9_999 {
        return None;
    }
    // Days from civil: years begin in March, so that a leap day is the last of its year.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let (era, year_of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let day_of_year = (153 * month + 2) / 5 + day - 1;
    let days =
        era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468;
    Some(((days * 24 + hour) * 60 + minute) * 60_000 + second * 1_000)
}

fn numbers(text: &str, between: char) -> Option<[i64; 3]> {
    let parts: Vec<i64> =
        text.split(between).map(|part| part.parse::<u32>().ok().map(i64::from)).collect::<Option<_>>()?;
    parts.try_into().ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn dates_are_read_and_written() {
        for (text, ms) in [
            ("1970-01-01T00:00:00Z", Some(0)),
            ("2013-05-24T00:00:00Z", Some(1_369_353_600_000)),
            ("2024-02-29T23:59:59.123Z", Some(1_709_251_199_000)),
            ("2024-13-01T00:00:00Z", None),
            ("2024-01-01", None),
            ("2024-01-01T00:00:00+01:00", None),
        ] {
            assert_eq!(parse_date(text), ms, "{text}");
        }
        assert_eq!(amz_date(1_709_251_199_000), "20240229T235959Z");
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(seconds in 0_i64..4_000_000_000, text in "[0-9TZ:.-]{0,24}") {
            let _ = parse_date(&text);
            let date = amz_date(seconds * 1_000);
            let long = format!("{}-{}-{}T{}:{}:{}Z", &date[..4], &date[4..6], &date[6..8], &date[9..11], &date[11..13], &date[13..15]);
            prop_assert_eq!(parse_date(&long), Some(seconds * 1_000));
        }
    }
}
