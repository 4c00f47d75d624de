import com.fasterxml.jackson.databind.JsonNode;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/** Reads on as a member of a group: some records, or all up to the end of now; commits what it has read, and leaves. */
final class GroupReader {
    private static final long TIMEOUT_MS = 60_000;

    private GroupReader() { }

    static Object read(JsonNode arguments) {
        Map<String, Object> config = new HashMap<>();
        config.put("bootstrap.servers", arguments.get("bootstrap").asText());
        config.put("group.id", arguments.get("group").asText());
        config.put("group.protocol", arguments.get("protocol").asText());
        config.put("isolation.level", arguments.get("isolation").asText());
        // A group without an offset is a failure of the test, not a reason to begin anywhere.
        config.put("auto.offset.reset", arguments.get("reset").asText());
        config.put("enable.auto.commit", "false");
        config.put("fetch.max.wait.ms", "100");
        config.put("max.poll.records", "50");
        try (KafkaConsumer<byte[], byte[]> consumer =
                     new KafkaConsumer<>(config, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            return read(consumer, arguments.get("topic").asText(), arguments.get("records").asLong());
        }
    }

    private static List<String> read(KafkaConsumer<byte[], byte[]> consumer, String topic, long most) {
        TopicPartition partition = new TopicPartition(topic, 0);
        long end = consumer.endOffsets(List.of(partition)).get(partition);
        consumer.subscribe(List.of(topic));
        List<String> values = new ArrayList<>();
        long deadline = System.currentTimeMillis() + TIMEOUT_MS;
        long next = -1;
        while (next < end && (most < 0 || values.size() < most)) {
            for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(100))) {
                if (most >= 0 && values.size() >= most) break;
                values.add(new String(record.value(), StandardCharsets.UTF_8));
                next = record.offset() + 1;
            }
            if (most < 0 && consumer.assignment().contains(partition)) next = consumer.position(partition);
            if (System.currentTimeMillis() > deadline) {
                throw new IllegalStateException("read " + values.size() + " records up to " + next + " of " + end);
            }
        }
        consumer.commitSync(Map.of(partition, new OffsetAndMetadata(next, "by the test")));
        return values;
    }
}
