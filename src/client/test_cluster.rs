//! A cluster for tests of the control plane: peers on the simulated network that answer by script.
//!
//! ApiVersions and Metadata are answered from a table; everything else by the test's own function.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use bytes::{BufMut, Bytes, BytesMut};
use kafka_protocol::messages::api_versions_response::ApiVersion;
use kafka_protocol::messages::metadata_response::{
    MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic,
};
use kafka_protocol::messages::{
    ApiKey, ApiVersionsResponse, BrokerId, MetadataRequest, MetadataResponse, ResponseHeader, TopicName,
};
use kafka_protocol::protocol::{Decodable, Encodable, decode_request_header_from_buffer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use uuid::Uuid;

use super::{Cluster, HostPort, Settings};
use crate::seam::{Seam, Simulation, Socket};

/// A request as a peer of the test sees it.
pub(super) struct Asked {
    pub(super) broker: i32,
    pub(super) api: ApiKey,
    pub(super) version: i16,
    pub(super) body: Bytes,
}

impl Asked {
    pub(super) fn decode<M: Decodable>(&self) -> M {
        M::decode(&mut self.body.clone(), self.version).unwrap()
    }

    pub(super) fn reply<M: Encodable>(&self, response: &M) -> Reply {
        let mut body = BytesMut::new();
        response.encode(&mut body, self.version).unwrap();
        Reply::Body(body.freeze())
    }
}

pub(super) enum Reply {
    Body(Bytes),
    Close,
    Silence,
}

type Answer = Box<dyn FnMut(&Asked) -> Reply + Send>;

/// What the peers know.
pub(super) struct World {
    pub(super) addresses: BTreeMap<i32, SocketAddr>,
    pub(super) controller: i32,
    /// Topic → leader and epoch of each partition.
    pub(super) topics: BTreeMap<String, Vec<(i32, i32)>>,
    /// Highest versions, where not the codec's.
    pub(super) caps: BTreeMap<i16, i16>,
    /// Brokers that live, in Metadata and on the network.
    pub(super) dead: Vec<i32>,
    /// Each request but ApiVersions, in order.
    pub(super) log: Vec<(i32, ApiKey)>,
    answer: Answer,
}

pub(super) struct TestCluster {
    pub(super) simulation: Simulation,
    pub(super) world: Arc<Mutex<World>>,
    pub(super) cluster: Cluster,
}

impl TestCluster {
    /// Brokers 1 to `brokers`; `answer` answers what is neither ApiVersions nor Metadata.
    pub(super) async fn start(
        brokers: i32,
        topics: &[(&str, &[(i32, i32)])],
        answer: impl FnMut(&Asked) -> Reply + Send + 'static,
    ) -> TestCluster {
        let simulation = Simulation::new(1);
        let seam = Seam::Simulated(simulation.clone());
        let world = Arc::new(Mutex::new(World {
            addresses: BTreeMap::new(),
            controller: brokers,
            topics: topics.iter().map(|&(name, partitions)| (name.to_owned(), partitions.to_vec())).collect(),
            caps: BTreeMap::new(),
            dead: Vec::new(),
            log: Vec::new(),
            answer: Box::new(answer),
        }));
        for broker in 1..=brokers {
            let address = SocketAddr::from(([10, 0, 0, broker as u8], 9092));
            let mut listener = seam.listen(address).await.unwrap();
            world.lock().unwrap().addresses.insert(broker, address);
            let (world, spawner) = (world.clone(), seam.clone());
            seam.spawn(async move {
                while let Ok(socket) = listener.accept().await {
                    if !world.lock().unwrap().dead.contains(&broker) {
                        spawner.spawn(serve(world.clone(), broker, socket));
                    }
                }
            });
        }
        let bootstrap = (1..=brokers).map(|broker| HostPort::new(format!("10.0.0.{broker}"), 9092)).collect();
        let cluster = Cluster::new(seam, Settings::new("A", bootstrap));
        TestCluster { simulation, world, cluster }
    }

    pub(super) fn change(&self, change: impl FnOnce(&mut World)) {
        change(&mut self.world.lock().unwrap());
    }

    /// The requests of an API so far, by broker.
    pub(super) fn asked(&self, api: ApiKey) -> Vec<i32> {
        let world = self.world.lock().unwrap();
        world.log.iter().filter(|&&(_, asked)| asked == api).map(|&(broker, _)| broker).collect()
    }
}

async fn serve(world: Arc<Mutex<World>>, broker: i32, mut socket: Socket) {
    while let Ok(size) = socket.read_i32().await {
        let mut frame = vec![0; size as usize];
        if socket.read_exact(&mut frame).await.is_err() {
            return;
        }
        let mut body = Bytes::from(frame);
        let header = decode_request_header_from_buffer(&mut body).unwrap();
        let api = ApiKey::try_from(header.request_api_key).unwrap();
        let asked = Asked { broker, api, version: header.request_api_version, body };
        let reply = world.lock().unwrap().reply(&asked);
        let body = match reply {
            Reply::Body(body) => body,
            Reply::Silence => continue,
            Reply::Close => return,
        };
        let mut head = BytesMut::new();
        let header_version = api.response_header_version(asked.version);
        let response = ResponseHeader::default().with_correlation_id(header.correlation_id);
        response.encode(&mut head, header_version).unwrap();
        let mut frame = BytesMut::new();
        frame.put_i32((head.len() + body.len()) as i32);
        frame.put(head);
        frame.put(body);
        if socket.write_all(&frame).await.is_err() {
            return;
        }
    }
}

impl World {
    fn reply(&mut self, asked: &Asked) -> Reply {
        if self.dead.contains(&asked.broker) {
            return Reply::Close;
        }
        if asked.api == ApiKey::ApiVersions {
            return asked.reply(&self.versions());
        }
        self.log.push((asked.broker, asked.api));
        match asked.api {
            ApiKey::Metadata => asked.reply(&self.metadata(&asked.decode())),
            _ => (self.answer)(asked),
        }
    }

    fn versions(&self) -> ApiVersionsResponse {
        let keys = (0..100).filter_map(|key| ApiKey::try_from(key).ok());
        let range = |api: ApiKey| {
            let versions = api.valid_versions();
            let max = self.caps.get(&(api as i16)).copied().unwrap_or(versions.max);
            ApiVersion::default()
                .with_api_key(api as i16)
                .with_min_version(versions.min)
                .with_max_version(max)
        };
        ApiVersionsResponse::default().with_api_keys(keys.map(range).collect())
    }

    fn metadata(&self, request: &MetadataRequest) -> MetadataResponse {
        let live = self.addresses.iter().filter(|(id, _)| !self.dead.contains(id));
        let broker = |(&id, address): (&i32, &SocketAddr)| {
            MetadataResponseBroker::default()
                .with_node_id(BrokerId(id))
                .with_host(address.ip().to_string().into())
                .with_port(address.port().into())
        };
        let names: Vec<String> = match &request.topics {
            None => self.topics.keys().cloned().collect(),
            Some(topics) => topics.iter().map(|topic| topic.name.as_ref().unwrap().0.to_string()).collect(),
        };
        MetadataResponse::default()
            .with_brokers(live.map(broker).collect())
            .with_cluster_id(Some("cluster".into()))
            .with_controller_id(BrokerId(self.controller))
            .with_topics(names.iter().map(|name| self.topic(name)).collect())
    }

    fn topic(&self, name: &str) -> MetadataResponseTopic {
        let topic = MetadataResponseTopic::default().with_name(Some(TopicName(name.to_owned().into())));
        let Some(partitions) = self.topics.get(name) else { return topic.with_error_code(3) };
        let partition = |(index, &(leader, epoch)): (usize, &(i32, i32))| {
            MetadataResponsePartition::default()
                .with_partition_index(index as i32)
                .with_leader_id(BrokerId(leader))
                .with_leader_epoch(epoch)
                .with_error_code(if leader < 0 { 5 } else { 0 })
        };
        topic
            .with_topic_id(Uuid::from_u128(name.len() as u128 + 1))
            .with_partitions(partitions.iter().enumerate().map(partition).collect())
    }
}
