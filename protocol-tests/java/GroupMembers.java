import com.fasterxml.jackson.databind.JsonNode;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.errors.WakeupException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;

/** Live members of classic groups, by a name that the test gives; each polls in its own thread until it leaves. */
final class GroupMembers {
    private record Member(KafkaConsumer<byte[], byte[]> consumer, Thread thread) { }

    private final Map<String, Member> members = new ConcurrentHashMap<>();

    /** Returns when the group has accepted the member. */
    Object join(JsonNode arguments) throws Exception {
        Map<String, Object> config = new HashMap<>();
        config.put("bootstrap.servers", arguments.get("bootstrap").asText());
        config.put("group.id", arguments.get("group").asText());
        config.put("session.timeout.ms", "6000");
        config.put("enable.auto.commit", "false");
        config.put("auto.offset.reset", "earliest");
        KafkaConsumer<byte[], byte[]> consumer =
                new KafkaConsumer<>(config, new ByteArrayDeserializer(), new ByteArrayDeserializer());
        consumer.subscribe(List.of(arguments.get("topic").asText()));
        long deadline = System.currentTimeMillis() + 30_000;
        while (consumer.assignment().isEmpty()) {
            consumer.poll(Duration.ofMillis(100));
            if (System.currentTimeMillis() > deadline) throw new IllegalStateException("the group did not accept us");
        }
        Thread thread = new Thread(() -> pollUntilWoken(consumer));
        thread.setDaemon(true);
        thread.start();
        members.put(arguments.get("member").asText(), new Member(consumer, thread));
        return null;
    }

    Object leave(JsonNode arguments) throws Exception {
        Member member = members.remove(arguments.get("member").asText());
        member.consumer().wakeup();
        member.thread().join();
        return null;
    }

    private static void pollUntilWoken(KafkaConsumer<byte[], byte[]> consumer) {
        try (consumer) {
            while (true) consumer.poll(Duration.ofMillis(500));
        } catch (WakeupException end) {
            // The test let it leave.
        }
    }
}
