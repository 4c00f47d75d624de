import com.fasterxml.jackson.databind.JsonNode;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.stream.Collectors;

/** Reads a topic from its start to the end that it has at the time of the request. */
final class Reader {
    private static final long TIMEOUT_MS = 60_000;

    private Reader() { }

    static Object read(JsonNode arguments) {
        Map<String, Object> config = new HashMap<>();
        config.put("bootstrap.servers", arguments.get("bootstrap").asText());
        config.put("isolation.level", arguments.get("isolation").asText());
        config.put("auto.offset.reset", "earliest");
        config.put("enable.auto.commit", "false");
        config.put("fetch.max.wait.ms", "100");
        config.put("max.poll.records", "5000");
        config.put("allow.auto.create.topics", "false");
        try (KafkaConsumer<byte[], byte[]> consumer =
                     new KafkaConsumer<>(config, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            return read(consumer, arguments.get("topic").asText());
        }
    }

    private static List<Map<String, Object>> read(KafkaConsumer<byte[], byte[]> consumer, String topic) {
        Set<TopicPartition> partitions = consumer.partitionsFor(topic).stream()
                .map(info -> new TopicPartition(topic, info.partition())).collect(Collectors.toSet());
        Map<TopicPartition, Long> ends = consumer.endOffsets(partitions);
        consumer.assign(partitions);
        consumer.seekToBeginning(partitions);
        List<Map<String, Object>> records = new ArrayList<>();
        long deadline = System.currentTimeMillis() + TIMEOUT_MS;
        while (!ends.isEmpty()) {
            for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(100))) {
                if (record.offset() < ends.getOrDefault(new TopicPartition(topic, record.partition()), 0L)) {
                    records.add(describe(record));
                }
            }
            // The position also passes control records, which poll never returns.
            List<TopicPartition> done = ends.keySet().stream()
                    .filter(partition -> consumer.position(partition) >= ends.get(partition)).collect(Collectors.toList());
            done.forEach(ends::remove);
            consumer.pause(done);
            if (System.currentTimeMillis() > deadline) {
                throw new IllegalStateException("not read to the end: " + ends + ", " + records.size() + " records");
            }
        }
        return records;
    }

    private static Map<String, Object> describe(ConsumerRecord<byte[], byte[]> record) {
        List<List<String>> headers = new ArrayList<>();
        for (Header header : record.headers()) {
            List<String> pair = new ArrayList<>();
            pair.add(header.key());
            pair.add(Bytes.text(header.value()));
            headers.add(pair);
        }
        Map<String, Object> map = new LinkedHashMap<>();
        map.put("partition", record.partition());
        map.put("offset", record.offset());
        map.put("timestamp", record.timestamp());
        map.put("timestamp_type", record.timestampType().name);
        map.put("key", Bytes.text(record.key()));
        map.put("value", Bytes.text(record.value()));
        map.put("headers", headers);
        return map;
    }
}
