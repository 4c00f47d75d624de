//! Programs with a known fault, made from the right one by changing what it writes to the network.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use bytes::{Buf, Bytes, BytesMut};
use kafka_protocol::messages::{ApiKey, ProduceRequest, RequestHeader};
use kafka_protocol::protocol::{Decodable, Encodable};
use kmirror::record::{
    BatchBuilder, BatchHeader, BatchOptions, Codec, HEADER_BYTES, ProducerIdentity, RecordData, patch,
};
use kmirror::seam::{Simulation, Tamper};

use crate::processes::position_of;
use crate::world::{Partition, named, opened};

/// Which program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variant {
    /// The right one.
    Whole,
    /// The right one, with its Produce requests taken apart and put together again.
    Unchanged,
    /// What is sent again goes from sequence 0 of a new epoch, so the broker does not know it.
    ResendUnderNewSequence,
    /// With every save, the positions of all that was sent are stored.
    PositionBeforeAck,
}

impl Variant {
    /// Makes the process of this name such a program.
    pub fn install(self, simulation: &Simulation, name: &str) {
        let edit: Arc<Mutex<dyn Edit>> = match self {
            Variant::Whole => return,
            Variant::Unchanged => Arc::new(Mutex::new(Nothing)),
            Variant::ResendUnderNewSequence => Arc::new(Mutex::new(NewSequences::default())),
            Variant::PositionBeforeAck => Arc::new(Mutex::new(SentPositions::default())),
        };
        simulation.tamper(name, move |_| frames(edit.clone()));
    }
}

/// Which partition a batch is for: topic by name or id, as the request has it, and index.
type Place = (String, i32);

trait Edit: Send {
    fn edit(&mut self, place: Place, batch: Bytes) -> Bytes;
}

struct Nothing;

impl Edit for Nothing {
    fn edit(&mut self, _: Place, batch: Bytes) -> Bytes {
        batch
    }
}

/// By partition, what was sent under which epoch.
#[derive(Default)]
struct NewSequences(BTreeMap<Place, Numbering>);

#[derive(Default)]
struct Numbering {
    /// Producer id and epoch of the program.
    producer: (i64, i16),
    sent: BTreeSet<i32>,
    /// Epochs that were added to the program's.
    added: i16,
    /// Sequence that is 0 in the added epoch.
    first: i32,
}

impl Edit for NewSequences {
    fn edit(&mut self, place: Place, batch: Bytes) -> Bytes {
        let header = BatchHeader::parse(&batch).unwrap();
        if header.producer_id < 0 {
            return batch;
        }
        let numbering = self.0.entry(place).or_default();
        if numbering.producer != (header.producer_id, header.producer_epoch) {
            numbering.producer = (header.producer_id, header.producer_epoch);
            numbering.sent.clear();
            numbering.first = 0;
        }
        if !numbering.sent.insert(header.base_sequence) {
            numbering.sent = BTreeSet::from([header.base_sequence]);
            numbering.added += 1;
            numbering.first = header.base_sequence;
        }
        let identity = ProducerIdentity {
            producer_id: header.producer_id,
            producer_epoch: header.producer_epoch + numbering.added,
            base_sequence: header.base_sequence - numbering.first,
        };
        let patched = patch(&batch, batch.len(), identity).unwrap();
        Bytes::from([&patched[..], &batch[HEADER_BYTES..]].concat())
    }
}

/// The next record to be sent, by source partition.
#[derive(Default)]
struct SentPositions(BTreeMap<Partition, u32>);

impl Edit for SentPositions {
    fn edit(&mut self, _: Place, batch: Bytes) -> Bytes {
        // The batch that is damaged at the source.
        if kmirror::record::verify_crc(&batch).is_err() {
            return batch;
        }
        let (_, records) = opened(&batch);
        for (partition, number) in records.iter().filter_map(named) {
            let next = self.0.entry(partition).or_default();
            *next = (*next).max(number + 1);
        }
        if records.iter().all(|record| position_of(record).is_none()) {
            return batch;
        }
        let timestamp = records[0].timestamp;
        let mut builder = BatchBuilder::new(BatchOptions::new(Codec::None));
        records.iter().for_each(|record| builder.push(record).unwrap());
        self.0
            .iter()
            .for_each(|(partition, next)| builder.push(&stored(partition, *next, timestamp)).unwrap());
        builder.build().unwrap()
    }
}

/// A record of MirrorMaker's offsets topic.
fn stored((topic, partition): &Partition, next: u32, timestamp: i64) -> RecordData {
    let place = format!("{{\"cluster\":\"A\",\"partition\":{partition},\"topic\":\"{topic}\"}}");
    RecordData {
        timestamp,
        key: Some(Bytes::from(format!("[\"MirrorSourceConnector\",{place}]"))),
        value: Some(Bytes::from(format!("{{\"offset\":{}}}", i64::from(next) - 1))),
        headers: Vec::new(),
    }
}

/// Changes the batches of the Produce requests on one connection.
fn frames(edit: Arc<Mutex<dyn Edit>>) -> Tamper {
    let mut waiting = BytesMut::new();
    Box::new(move |bytes| {
        waiting.extend_from_slice(bytes);
        let mut out = Vec::new();
        while let Some(size) = waiting.first_chunk::<4>().map(|size| i32::from_be_bytes(*size) as usize)
            && waiting.len() >= 4 + size
        {
            waiting.advance(4);
            let frame = edited(waiting.split_to(size).freeze(), &edit);
            out.extend((frame.len() as i32).to_be_bytes());
            out.extend(frame);
        }
        out
    })
}

fn edited(frame: Bytes, edit: &Mutex<dyn Edit>) -> Bytes {
    let (key, version) = (i16::from_be_bytes([frame[0], frame[1]]), i16::from_be_bytes([frame[2], frame[3]]));
    if key != ApiKey::Produce as i16 {
        return frame;
    }
    let mut rest = frame.clone();
    RequestHeader::decode(&mut rest, ApiKey::Produce.request_header_version(version)).unwrap();
    let mut out = BytesMut::from(&frame[..frame.len() - rest.len()]);
    let mut request = ProduceRequest::decode(&mut rest, version).unwrap();
    for topic in &mut request.topic_data {
        let name = format!("{} {}", topic.name.0, topic.topic_id);
        for data in &mut topic.partition_data {
            let batch = data.records.take().unwrap();
            data.records = Some(edit.lock().unwrap().edit((name.clone(), data.index), batch));
        }
    }
    request.encode(&mut out, version).unwrap();
    out.freeze()
}
