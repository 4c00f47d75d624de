import com.fasterxml.jackson.databind.JsonNode;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.errors.TransactionAbortedException;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.serialization.ByteArraySerializer;

import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.atomic.AtomicReference;

/** Producers by name; each stays open between requests, so that a transaction can be left open. */
final class Producers {
    private final Map<String, KafkaProducer<byte[], byte[]>> open = new ConcurrentHashMap<>();

    Object open(JsonNode arguments) {
        Map<String, Object> config = new HashMap<>();
        arguments.get("config").properties().forEach(entry -> config.put(entry.getKey(), entry.getValue().asText()));
        KafkaProducer<byte[], byte[]> producer =
                new KafkaProducer<>(config, new ByteArraySerializer(), new ByteArraySerializer());
        if (config.containsKey("transactional.id")) producer.initTransactions();
        open.put(arguments.get("producer").asText(), producer);
        return null;
    }

    Object close(JsonNode arguments) {
        KafkaProducer<byte[], byte[]> producer = open.remove(arguments.get("producer").asText());
        if (producer != null) producer.close(Duration.ofSeconds(30));
        return null;
    }

    Object run(JsonNode arguments) throws Exception {
        KafkaProducer<byte[], byte[]> producer = open.get(arguments.get("producer").asText());
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        for (JsonNode step : arguments.get("steps")) {
            switch (step.get("do").asText()) {
                case "send": sent.add(producer.send(record(step))); break;
                case "flush": producer.flush(); break;
                case "begin": producer.beginTransaction(); break;
                case "commit": producer.commitTransaction(); break;
                case "abort": producer.abortTransaction(); break;
                default: throw new IllegalArgumentException("unknown step " + step);
            }
        }
        List<Long> offsets = new ArrayList<>();
        for (Future<RecordMetadata> future : sent) offsets.add(offset(future));
        return offsets;
    }

    /**
     * Fills partitions in turn with records of one size as fast as it can; half of each value is noise, so that it
     * shrinks by about half under a codec. Returns the number of records sent.
     */
    Object load(JsonNode arguments) throws Exception {
        Map<String, Object> config = new HashMap<>();
        arguments.get("config").properties().forEach(entry -> config.put(entry.getKey(), entry.getValue().asText()));
        String topic = arguments.get("topic").asText();
        int partitions = arguments.get("partitions").asInt();
        long records = arguments.get("records").asLong();
        byte[][] values = new byte[1009][];
        Random random = new Random(7);
        for (int i = 0; i < values.length; i++) {
            values[i] = new byte[arguments.get("record_bytes").asInt()];
            byte[] noise = new byte[values[i].length / 2];
            random.nextBytes(noise);
            System.arraycopy(noise, 0, values[i], 0, noise.length);
        }
        AtomicReference<Exception> failure = new AtomicReference<>();
        try (KafkaProducer<byte[], byte[]> producer =
                     new KafkaProducer<>(config, new ByteArraySerializer(), new ByteArraySerializer())) {
            for (long i = 0; i < records; i++) {
                byte[] value = values[(int) (i % values.length)];
                producer.send(new ProducerRecord<>(topic, (int) (i % partitions), null, value), (metadata, error) -> {
                    if (error != null) failure.set(error);
                });
            }
        }
        if (failure.get() != null) throw failure.get();
        return records;
    }

    /** A record that still waited in a batch when its transaction was aborted never got an offset. */
    private static long offset(Future<RecordMetadata> future) throws Exception {
        try {
            return future.isDone() ? future.get().offset() : -1L;
        } catch (ExecutionException error) {
            if (error.getCause() instanceof TransactionAbortedException) return -1L;
            throw error;
        }
    }

    private static ProducerRecord<byte[], byte[]> record(JsonNode step) {
        List<Header> headers = new ArrayList<>();
        for (JsonNode pair : step.get("headers")) headers.add(new RecordHeader(pair.get(0).asText(), Bytes.from(pair.get(1))));
        Integer partition = step.get("partition").isNull() ? null : step.get("partition").asInt();
        Long timestamp = step.get("timestamp").isNull() ? null : step.get("timestamp").asLong();
        return new ProducerRecord<>(step.get("topic").asText(), partition, timestamp,
                Bytes.from(step.get("key")), Bytes.from(step.get("value")), headers);
    }
}
