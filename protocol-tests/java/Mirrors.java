import com.fasterxml.jackson.databind.JsonNode;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.connect.mirror.MirrorClient;
import org.apache.kafka.connect.mirror.RemoteClusterUtils;

import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.TreeSet;

/** What MirrorMaker's own client makes of a cluster that is mirrored to. */
final class Mirrors {
    private Mirrors() { }

    /** RemoteClusterUtils.translateOffsets. */
    static Object translate(JsonNode arguments) throws Exception {
        Map<TopicPartition, OffsetAndMetadata> offsets = RemoteClusterUtils.translateOffsets(properties(arguments),
                arguments.get("alias").asText(), arguments.get("group").asText(), Duration.ofSeconds(30));
        List<Map<String, Object>> result = new ArrayList<>();
        offsets.forEach((partition, offset) -> result.add(Map.of("topic", partition.topic(), "partition",
                partition.partition(), "offset", offset.offset(), "metadata", offset.metadata())));
        return result;
    }

    /** Everything that MirrorClient tells. */
    static Object describe(JsonNode arguments) throws Exception {
        try (MirrorClient client = new MirrorClient(properties(arguments))) {
            Map<String, Object> view = new TreeMap<>();
            view.put("heartbeat_topics", new TreeSet<>(client.heartbeatTopics()));
            view.put("checkpoint_topics", new TreeSet<>(client.checkpointTopics()));
            view.put("remote_topics", new TreeSet<>(client.remoteTopics(arguments.get("alias").asText())));
            view.put("upstream_clusters", new TreeSet<>(client.upstreamClusters()));
            view.put("hops", client.replicationHops(arguments.get("alias").asText()));
            return view;
        }
    }

    private static Map<String, Object> properties(JsonNode arguments) {
        Map<String, Object> properties = new HashMap<>();
        properties.put("bootstrap.servers", arguments.get("bootstrap").asText());
        return properties;
    }
}
