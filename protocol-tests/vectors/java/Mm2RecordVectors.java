package org.apache.kafka.connect.mirror;

import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.TopicPartition;

import java.util.HexFormat;
import java.util.Random;

/** Records what connect-mirror writes into its topics, and how its OffsetSyncStore translates. */
public class Mm2RecordVectors {
  static String hex(byte[] bytes) { return '"' + HexFormat.of().formatHex(bytes) + '"'; }

  static class Store extends OffsetSyncStore {
    Store(boolean mustReadToEnd) { initializationMustReadToEnd = mustReadToEnd; }
    void sync(long up, long down) {
      OffsetSync sync = new OffsetSync(new TopicPartition("t", 0), up, down);
      handleRecord(new ConsumerRecord<>("syncs", 0, 0, sync.recordKey(), sync.recordValue()));
    }
    void end() { readToEnd = true; }
    long translate(long up) { return translateDownstream("g", new TopicPartition("t", 0), up).orElse(-2); }
  }

  public static void main(String[] args) {
    StringBuilder out = new StringBuilder("{\n\"syncs\": [\n");
    String[] topics = {"t", "orders", "a.b_c-d", "\u00e9\u20ac"};
    long[][] offsets = {{0, 0}, {5, 7}, {Long.MAX_VALUE, 1L << 40}, {-1, -1}};
    for (int i = 0; i < topics.length; i++) {
      OffsetSync sync = new OffsetSync(new TopicPartition(topics[i], i * 1000), offsets[i][0], offsets[i][1]);
      out.append(String.format("[\"%s\", %d, %d, %d, %s, %s]%s\n", topics[i], i * 1000, offsets[i][0], offsets[i][1],
          hex(sync.recordKey()), hex(sync.recordValue()), i + 1 < topics.length ? "," : ""));
    }
    out.append("],\n\"checkpoints\": [\n");
    String[] metadata = {"", "m", "{\\\"a\\\":1}", "\u00e9"};
    for (int i = 0; i < topics.length; i++) {
      String meta = metadata[i].replace("\\\"", "\"");
      Checkpoint checkpoint = new Checkpoint("g" + i, new TopicPartition("A." + topics[i], i), offsets[i][0], offsets[i][1], meta);
      out.append(String.format("[\"g%d\", \"A.%s\", %d, %d, %d, \"%s\", %s, %s]%s\n", i, topics[i], i, offsets[i][0], offsets[i][1],
          metadata[i], hex(checkpoint.recordKey()), hex(checkpoint.recordValue()), i + 1 < topics.length ? "," : ""));
    }
    out.append("],\n\"heartbeats\": [\n");
    Heartbeat beat = new Heartbeat("A", "us-west", 1_700_000_000_123L);
    out.append(String.format("[\"A\", \"us-west\", 1700000000123, %s, %s]\n", hex(beat.recordKey()), hex(beat.recordValue())));
    out.append("],\n\"stores\": [\n");
    Random random = new Random(7);
    int stores = 24;
    for (int s = 0; s < stores; s++) {
      boolean mustReadToEnd = s % 4 == 3;
      Store store = new Store(mustReadToEnd);
      long up = random.nextInt(100), down = random.nextInt(100);
      int count = 1 + random.nextInt(s < 12 ? 40 : 400), readAt = random.nextInt(count + 1);
      StringBuilder syncs = new StringBuilder();
      for (int n = 0; n < count; n++) {
        if (n == readAt) store.end();
        store.sync(up, down);
        syncs.append(n > 0 ? "," : "").append("[" + up + "," + down + "]");
        long step = switch (random.nextInt(6)) { case 0 -> 1; case 1 -> 1 + random.nextInt(3); case 2 -> 100; case 3 -> 1 + random.nextInt(5000); default -> 1 + random.nextInt(150); };
        if (random.nextInt(60) == 0) { up = Math.max(0, up - random.nextInt(3000)); down += 1; }
        else { up += step; down += Math.max(1, step - random.nextInt(3)); }
      }
      store.end();
      StringBuilder asked = new StringBuilder();
      for (int n = 0; n < 60; n++) {
        long at = n == 0 ? up : n < 30 ? Math.max(0, up - random.nextInt(1 + n * n * 4)) : (long) (random.nextDouble() * (up + 10));
        asked.append(n > 0 ? "," : "").append("[" + at + "," + store.translate(at) + "]");
      }
      out.append(String.format("{\"must_read_to_end\": %b, \"read_to_end_at\": %d, \"syncs\": [%s], \"translated\": [%s]}%s\n",
          mustReadToEnd, readAt, syncs, asked, s + 1 < stores ? "," : ""));
    }
    System.out.print(out.append("]\n}\n"));
  }
}
