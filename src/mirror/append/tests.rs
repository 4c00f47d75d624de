//! One partition's batches under every kind of answer, and none.

use super::*;
use crate::client::PartitionKey;
use crate::mirror::cargo::{Covers, Origin, Part};
use crate::mirror::window::Window;

const T0: Duration = Duration::ZERO;

fn cargo(upstream: i64, record_count: i32) -> Cargo {
    let mut header = [0; HEADER_BYTES];
    header[16] = 2;
    header[8..12].copy_from_slice(&(HEADER_BYTES as i32 - 12 + 3).to_be_bytes());
    header[23..27].copy_from_slice(&(record_count - 1).to_be_bytes());
    header[57..61].copy_from_slice(&record_count.to_be_bytes());
    let entry = Window::new(0, None).push(1, 1);
    let part =
        Part { source: PartitionKey(0), generation: 0, entry, upstream, record_count, covers: Covers::Entry };
    let batch = Bytes::from([&header[..], b"abc"].concat());
    Cargo { batch, record_count, max_timestamp: 0, origin: Origin::Verbatim, parts: vec![part] }
}

fn sequence(header: &[u8; HEADER_BYTES]) -> (i64, i16, i32) {
    let producer_id = i64::from_be_bytes(header[43..51].try_into().unwrap());
    let epoch = i16::from_be_bytes(header[51..53].try_into().unwrap());
    (producer_id, epoch, i32::from_be_bytes(header[53..57].try_into().unwrap()))
}

/// A partition whose broker has acknowledged ten records.
fn confirmed() -> Append {
    let mut append = Append::new(9, 0);
    append.send(cargo(0, 10), 1, T0).unwrap();
    append.answered(1, Verdict::Appended(Some(0)), T0).unwrap();
    append
}

#[test]
fn sequences_count_records_and_wrap() {
    for (sequence, count, want) in [(0, 3, 3), (i32::MAX, 1, 0), (i32::MAX - 1, 3, 1), (5, i32::MAX, 4)] {
        assert_eq!(following(sequence, count), want, "{sequence} + {count}");
    }
    let mut append = confirmed();
    assert_eq!(sequence(&append.send(cargo(10, 4), 2, T0).unwrap().0), (9, 0, 10));
    assert_eq!(sequence(&append.send(cargo(14, 1), 3, T0).unwrap().0), (9, 0, 14));
}

#[test]
fn one_batch_is_in_flight_until_the_broker_knows_us_and_five_after_that() {
    let mut append = Append::new(9, 0);
    append.send(cargo(0, 10), 1, T0).unwrap();
    assert!(!append.takes_new(T0));
    append.answered(1, Verdict::Appended(Some(0)), T0).unwrap();
    for request in 2..7 {
        assert!(append.takes_new(T0));
        append.send(cargo(0, 1), request, T0).unwrap();
    }
    assert!(!append.takes_new(T0));
    let mut idle = confirmed();
    idle.send(cargo(0, 1), 2, T0 + CONFIRMED_FOR).unwrap();
    assert!(!idle.takes_new(T0 + CONFIRMED_FOR), "after a long silence the broker may have forgotten us");
}

#[test]
fn a_lost_connection_resends_the_same_bytes_in_order() {
    let mut append = confirmed();
    let first = append.send(cargo(10, 1), 2, T0).unwrap();
    let second = append.send(cargo(11, 1), 3, T0).unwrap();
    append.lost(2);
    assert_eq!(append.settled(), None, "request 3 is still in flight");
    append.lost(3);
    assert_eq!(append.settled(), Some(Remedy::Resend));
    assert!(!append.takes_new(T0) && !append.takes_resend());
    append.start_resending();
    assert_eq!(append.resend(4), Some(first));
    assert_eq!(append.resend(5), Some(second));
    assert_eq!(append.resend(6), None);
    assert!(append.takes_new(T0));
    assert_eq!(append.answered(4, Verdict::Appended(Some(10)), T0).unwrap()[0].base_offset, Some(10));
}

#[test]
fn what_follows_a_failed_batch_is_a_consequence_and_not_a_cause() {
    let mut append = confirmed();
    for request in 2..5 {
        append.send(cargo(0, 1), request, T0).unwrap();
    }
    append.answered(2, Verdict::Failed(Remedy::Split), T0).unwrap();
    append.answered(3, Verdict::OutOfSequence, T0).unwrap();
    assert_eq!(append.settled(), None);
    append.answered(4, Verdict::OutOfSequence, T0).unwrap();
    assert_eq!(append.settled(), Some(Remedy::Split));
    assert!(append.first_is_not_appended());
    assert_eq!(append.requeue(Numbering::GoOn).len(), 3);
    assert_eq!(
        sequence(&append.send(cargo(0, 1), 9, T0).unwrap().0),
        (9, 0, 10),
        "numbered from the failed one on"
    );
}

#[test]
fn a_foreign_sequence_at_the_front_raises_the_epoch() {
    let mut append = confirmed();
    append.send(cargo(10, 2), 2, T0).unwrap();
    append.answered(2, Verdict::OutOfSequence, T0).unwrap();
    assert_eq!(append.settled(), Some(Remedy::BumpEpoch));
    assert_eq!(append.requeue(Numbering::NextEpoch).len(), 1);
    assert_eq!(sequence(&append.send(cargo(10, 2), 3, T0).unwrap().0), (9, 1, 0));
    assert!(!append.takes_new(T0));
}

#[test]
fn success_of_a_later_batch_tells_that_the_unknown_ones_before_it_are_in_the_log() {
    let mut append = confirmed();
    append.send(cargo(0, 1), 2, T0).unwrap();
    append.send(cargo(0, 1), 3, T0).unwrap();
    append.answered(2, Verdict::FailedUnknown(Remedy::Resend), T0).unwrap();
    let acked = append.answered(3, Verdict::Appended(Some(11)), T0).unwrap();
    assert_eq!(acked.iter().map(|acked| acked.base_offset).collect::<Vec<_>>(), [None, Some(11)]);
    assert_eq!((append.unacked(), append.settled()), (0, Some(Remedy::Resend)));
    append.start_resending();
    assert!(append.takes_new(T0));
}

#[test]
fn a_refusal_of_a_resend_says_nothing_about_the_first_attempt() {
    let mut append = confirmed();
    append.send(cargo(0, 1), 2, T0).unwrap();
    append.lost(2);
    append.start_resending();
    append.resend(3).unwrap();
    append.answered(3, Verdict::Failed(Remedy::Resend), T0).unwrap();
    assert!(!append.first_is_not_appended());
    append.start_resending();
    append.resend(4).unwrap();
    append.answered(4, Verdict::OutOfSequence, T0).unwrap();
    assert!(append.first_is_not_appended(), "the leader's own sequence tells");
}

#[test]
fn what_the_broker_may_have_forgotten_is_looked_up_before_it_is_sent_again() {
    let now_ms = 1_767_225_600_000;
    let mut append = confirmed();
    for request in 2..5 {
        let fresh = Cargo { max_timestamp: now_ms, ..cargo(0, 10) };
        append.send(fresh, request, T0).unwrap();
    }
    (2..5).for_each(|request| append.lost(request));
    assert!(!append.may_be_forgotten(T0, now_ms));
    assert!(append.may_be_forgotten(T0 + UNKNOWN_FOR_MAX * 2, now_ms), "unknown for long");
    assert!(append.may_be_forgotten(T0, now_ms + REMEMBERED_FOR_MS + 1), "old records");
    assert_eq!(append.inquire(7), Some((9, 0)));
    assert_eq!((append.settled(), append.inquire(8)), (None, None));
    assert!(append.found(6, &[]).unwrap().is_empty() && append.settled().is_none(), "an inquiry of before");
    assert!(append.give_up_inquiry(Some(7)));
    assert_eq!(append.settled(), Some(Remedy::Resend));
    append.inquire(8);
    let acked = append.found(8, &[(0, 0), (10, 10), (20, 25)]).unwrap();
    assert_eq!(acked.iter().map(|acked| acked.base_offset).collect::<Vec<_>>(), [Some(10), Some(25)]);
    assert!(append.first_is_not_appended() && !append.may_be_forgotten(T0, now_ms * 2));
    append.start_resending();
    assert!(append.resend(9).is_some() && append.settled().is_none());
}

#[test]
fn a_log_that_holds_a_later_batch_without_an_earlier_one_is_an_error() {
    let mut append = confirmed();
    append.send(cargo(0, 10), 2, T0).unwrap();
    append.send(cargo(0, 10), 3, T0).unwrap();
    (2..4).for_each(|request| append.lost(request));
    append.inquire(1);
    assert_eq!(append.found(1, &[(20, 10)]).unwrap_err(), OvertakenError { missing: 10, taken: 20 });
}

#[test]
fn a_producer_of_old_records_is_not_trusted_for_long_nor_after_a_failure() {
    let mut append = confirmed();
    append.acked_timestamp(5, REMEMBERED_FOR_MS * 2);
    assert!(append.takes_new(T0));
    let later = T0 + CONFIRMED_FOR_IF_OLD;
    append.send(cargo(0, 1), 9, later).unwrap();
    assert!(!append.takes_new(later), "not for long");
    append.answered(9, Verdict::Appended(None), later).unwrap();
    append.send(cargo(0, 1), 2, T0).unwrap();
    append.send(cargo(0, 1), 3, T0).unwrap();
    append.answered(2, Verdict::Failed(Remedy::Resend), T0).unwrap();
    append.answered(3, Verdict::OutOfSequence, T0).unwrap();
    append.start_resending();
    assert!(append.resend(4).is_some() && append.resend(5).is_none(), "one by one");
}

#[test]
fn a_batch_that_overtakes_another_is_an_error() {
    let mut append = confirmed();
    append.send(cargo(0, 1), 2, T0).unwrap();
    append.send(cargo(0, 1), 3, T0).unwrap();
    append.answered(2, Verdict::Failed(Remedy::Resend), T0).unwrap();
    let error = append.answered(3, Verdict::Appended(Some(7)), T0).unwrap_err();
    assert_eq!(error, OvertakenError { missing: 10, taken: 11 });
}
