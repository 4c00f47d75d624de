import com.fasterxml.jackson.databind.JsonNode;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.locks.LockSupport;

/**
 * How much later than at the source a record is read at the target: one process produces at a steady rate and reads
 * both sides, so all times come from one clock.
 */
final class Latency {
    private Latency() { }

    /** Returns, per record, the nanoseconds from sending to reading at the source and to reading at the target. */
    static Object measure(JsonNode arguments) throws Exception {
        int records = arguments.get("records").asInt();
        long[] sent = new long[records];
        Side source = new Side(arguments.get("source").asText(), arguments.get("topic").asText(), records);
        Side target = new Side(arguments.get("target").asText(), arguments.get("remote").asText(), records);
        source.start();
        target.start();
        source.ready.await();
        target.ready.await();
        long pause = 1_000_000_000L / arguments.get("rate").asInt();
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(
                Map.of("bootstrap.servers", arguments.get("source").asText(), "linger.ms", "0"),
                new ByteArraySerializer(), new ByteArraySerializer())) {
            long next = System.nanoTime();
            for (int i = 0; i < records; i++) {
                while (System.nanoTime() < next) LockSupport.parkNanos(next - System.nanoTime());
                next += pause;
                sent[i] = System.nanoTime();
                byte[] value = ByteBuffer.allocate(100).putInt(0, i).array();
                producer.send(new ProducerRecord<>(arguments.get("topic").asText(), 0, null, value));
            }
        }
        source.join(30_000);
        target.join(30_000);
        long[][] latencies = new long[records][];
        for (int i = 0; i < records; i++) {
            if (target.seen[i] == 0) throw new IllegalStateException("record " + i + " did not arrive");
            latencies[i] = new long[] {source.seen[i] - sent[i], target.seen[i] - sent[i]};
        }
        return latencies;
    }

    private static final class Side extends Thread {
        final CountDownLatch ready = new CountDownLatch(1);
        final long[] seen;
        private final String bootstrap;
        private final String topic;

        Side(String bootstrap, String topic, int records) {
            this.bootstrap = bootstrap;
            this.topic = topic;
            this.seen = new long[records];
            setDaemon(true);
        }

        @Override
        public void run() {
            Map<String, Object> config = Map.of("bootstrap.servers", bootstrap, "fetch.min.bytes", "1");
            try (KafkaConsumer<byte[], byte[]> consumer =
                         new KafkaConsumer<>(config, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
                TopicPartition partition = new TopicPartition(topic, 0);
                consumer.assign(List.of(partition));
                consumer.seekToEnd(List.of(partition));
                consumer.position(partition);
                ready.countDown();
                int left = seen.length;
                while (left > 0) {
                    for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(100))) {
                        int index = ByteBuffer.wrap(record.value()).getInt();
                        if (seen[index] == 0) {
                            seen[index] = System.nanoTime();
                            left--;
                        }
                    }
                }
            }
        }
    }
}
