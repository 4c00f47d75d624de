//! Records that are dealt out by key: each once, in the order of its key, in batches of a size that is worth it.

use super::*;
use crate::mirror::engine::command::Worked;
use crate::record::partition_for_key;

const TARGETS: i32 = 3;
const SHAPE: Shape = Shape { partitions: 2, batching: Batching::Adaptive, limits: (10_000, 10_000) };

fn world(shape: Shape, gathering: Gathering, seed: u64) -> World {
    let add = |engine: &mut Engine, new: &NewPartition| engine.add_by_key(new, TARGETS);
    let mut world = World::with(shape, TARGETS as usize, add, seed);
    world.engine.settings.gathering = gathering;
    world
}

const SMALL: Gathering = Gathering { batch_bytes_max: 1_000, linger: Duration::ZERO };

/// Records whose keys and values are their numbers; every fifth has no key.
fn keyed(first: u32, count: u32, codec: Codec) -> Bytes {
    let mut builder = BatchBuilder::new(BatchOptions::new(codec));
    for number in first..first + count {
        let key = (!number.is_multiple_of(5)).then(|| Bytes::from(number.to_string()));
        let value = Some(Bytes::from(number.to_string()));
        builder.push(&RecordData { timestamp: 1, key, value, ..RecordData::default() }).unwrap();
    }
    builder.build().unwrap()
}

impl World {
    fn append_keyed(&mut self, partition: usize, first: u32, count: u32, codec: Codec) {
        let bytes = keyed(first, count, codec);
        let origin = LogOrigin::Client(Verification::Missing);
        self.sources[partition].append(0, 0, &bytes, origin).unwrap();
    }

    fn target_batches(&self, partition: usize) -> Vec<BatchHeader> {
        let log = &self.targets[partition];
        let read = log.read(0, 1 << 20, Isolation::ReadUncommitted, FirstBatch::Whole).unwrap();
        read.batches.iter().map(|bytes| BatchHeader::parse(bytes).unwrap()).collect()
    }
}

fn numbers(log: &PartitionLog) -> Vec<u32> {
    values(log).iter().map(|value| std::str::from_utf8(value).unwrap().parse().unwrap()).collect()
}

/// The records of each source log, in order, of those that belong into a target partition.
fn check_dealt(world: &World) {
    for (at, target) in world.targets.iter().enumerate() {
        assert_eq!(target.violation_count(), 0, "{:?}", target.violations());
        let found = numbers(target);
        for (source, log) in world.sources.iter().enumerate() {
            let wanted = |number: &u32| match number.is_multiple_of(5) {
                true => source == at,
                false => partition_for_key(number.to_string().as_bytes(), TARGETS) == at as i32,
            };
            let of_source = numbers(log);
            let expected: Vec<u32> = of_source.iter().copied().filter(wanted).collect();
            let got: Vec<u32> = found.iter().copied().filter(|number| of_source.contains(number)).collect();
            assert_eq!(got, expected, "source {source}, target {at}");
        }
    }
    assert_eq!((world.engine.alive_bytes, world.engine.unpacked_bytes), (0, 0));
}

fn check(seed: u64, gathering: Gathering, batches: &[(u8, u8, u8)], steps: usize) {
    let mut world = world(SHAPE, gathering, seed);
    let mut number = 0;
    for &(partition, count, codec) in batches {
        let codec = [Codec::None, Codec::Gzip, Codec::Lz4, Codec::Zstd][usize::from(codec % 4)];
        let count = u32::from(count % 20) + 1;
        world.append_keyed(usize::from(partition % 2), number, count, codec);
        number += count;
    }
    for _ in 0..steps {
        world.step(true);
    }
    world.settle();
    check_dealt(&world);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn every_record_once_and_in_order_under_faults(
        seed: u64,
        batches in prop::collection::vec((any::<u8>(), any::<u8>(), any::<u8>()), 1..40),
        steps in 0_usize..400,
        bytes_max in prop_oneof![Just(0_usize), 200_usize..4_000],
        linger_ms in prop_oneof![Just(0_u64), 1_u64..30],
    ) {
        let gathering = Gathering { batch_bytes_max: bytes_max, linger: Duration::from_millis(linger_ms) };
        check(seed, gathering, &batches, steps);
    }
}

/// What each of many small batches gives a partition goes into few, whatever the codec, and each is opened once.
#[test]
fn what_is_small_is_gathered() {
    for codec in [Codec::None, Codec::Lz4] {
        let mut world = world(SHAPE, SMALL, 7);
        (0..100).for_each(|batch| world.append_keyed(0, batch * 6, 6, codec));
        world.settle();
        check_dealt(&world);
        let batches: usize = (0..TARGETS as usize).map(|at| world.target_batches(at).len()).sum();
        assert!(batches < 100, "{codec:?}: {batches} of 300");
        for header in (0..TARGETS as usize).flat_map(|at| world.target_batches(at)) {
            assert_eq!(header.attributes.codec(), Ok(codec));
            assert!(header.size_bytes <= 1_000);
        }
        let status = &world.engine.partitions()[&(Arc::from("t"), 0)];
        assert_eq!(status.counters.batches_rewritten[RewriteReason::Partitioned as usize], 100);
        assert_eq!(status.counters.records, 600);
    }
}

/// As Java's producer: what is not full waits for `linger.ms`, and no longer; what is full does not wait.
#[test]
fn a_batch_lingers_until_its_time_is_over_or_it_is_full() {
    let linger = Duration::from_millis(50);
    let mut world = world(SHAPE, Gathering { linger, ..SMALL }, 3);
    let open_all = |world: &mut World, first: u32, count: u32| {
        world.append_keyed(0, first, count, Codec::None);
        world.deliver_fetch_of(0);
        world.carry_out();
        while !world.rewrites.is_empty() {
            world.deliver_rewrite();
            world.carry_out();
        }
        world.wires.values().map(VecDeque::len).sum::<usize>()
    };
    assert_eq!(open_all(&mut world, 0, 9), 0, "it waits");
    world.now += linger / 2;
    assert_eq!(open_all(&mut world, 9, 9), 0, "with what comes");
    assert_eq!(world.engine.next_deadline(), Some(linger));
    world.now = linger;
    world.engine.on_timer(world.now);
    world.carry_out();
    assert!(world.wires.values().any(|wire| !wire.is_empty()), "its time is over");
    world.settle();
    check_dealt(&world);
    let batches: usize = (0..TARGETS as usize).map(|at| world.target_batches(at).len()).sum();
    assert_eq!(batches, 3, "one for each partition");
    assert!(open_all(&mut world, 18, 400) > 0, "what is full goes");
}

#[test]
fn what_cannot_be_opened_stops_the_source_partition_with_its_reason() {
    let mut world = world(SHAPE, SMALL, 1);
    world.append_keyed(0, 0, 6, Codec::Gzip);
    world.deliver_fetch_of(0);
    world.carry_out();
    let job = world.rewrites.pop_front().unwrap();
    let dealt = Err(record::Error::Magic(9));
    world.engine.on_rewritten(job.id, Worked::Dealt { places: TARGETS as usize, dealt }, world.now);
    world.carry_out();
    let status = &world.engine.partitions()[&(Arc::from("t"), 0)];
    assert_eq!(status.stopped.as_ref().map(|stopped| stopped.reason), Some("damaged"));
    assert_eq!(world.log.len(), 1, "{:?}", world.log);
    assert!(world.engine.targets.iter().all(|target| target.queue.is_empty()));
    assert_eq!((world.engine.alive_bytes, world.engine.unpacked_bytes), (0, 0));
}

/// What waits unpacked counts, so that batches that grow a hundredfold do not.
#[test]
fn what_waits_unpacked_is_charged() {
    let mut world = world(SHAPE, Gathering { linger: Duration::from_secs(1), ..SMALL }, 1);
    let mut builder = BatchBuilder::new(BatchOptions::new(Codec::Zstd));
    let value = Some(Bytes::from(vec![7; 600]));
    builder.push(&RecordData { key: Some("k".into()), value, ..RecordData::default() }).unwrap();
    let bytes = builder.build().unwrap();
    world.sources[0].append(0, 0, &bytes, LogOrigin::Client(Verification::Missing)).unwrap();
    world.deliver_fetch_of(0);
    world.carry_out();
    world.deliver_rewrite();
    assert!(world.engine.unpacked_bytes > 600, "{}", world.engine.unpacked_bytes);
    world.engine.drain();
    assert_eq!((world.engine.alive_bytes, world.engine.unpacked_bytes), (0, 0));
}
