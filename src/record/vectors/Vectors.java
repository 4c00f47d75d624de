// Writes vectors.txt: batches and message sets as Kafka's own Java library encodes them, one a line: name, hex.
//
//   java -cp kafka-clients-3.9.1.jar:slf4j-api.jar:lz4-java.jar:snappy-java.jar:zstd-jni.jar Vectors.java > vectors.txt
//
// 3.9 is the last line whose library still writes magic 0 and 1. The records are those of `expected` in ../vectors.rs.
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.HexFormat;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.record.CompressionType;
import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.common.record.MemoryRecordsBuilder;
import org.apache.kafka.common.record.TimestampType;

public class Vectors {
    static final long BASE_OFFSET = 100;
    static final long APPEND_TIME = 9_999;

    public static void main(String[] arguments) {
        for (byte magic = 0; magic <= 2; magic++) {
            for (CompressionType type : CompressionType.values()) {
                if (magic < 2 && type == CompressionType.ZSTD) continue;
                write(magic, type, TimestampType.CREATE_TIME);
                if (magic > 0) write(magic, type, TimestampType.LOG_APPEND_TIME);
            }
        }
    }

    static void write(byte magic, CompressionType type, TimestampType timestampType) {
        ByteBuffer buffer = ByteBuffer.allocate(1 << 20);
        long appendTime = timestampType == TimestampType.LOG_APPEND_TIME ? APPEND_TIME : -1;
        MemoryRecordsBuilder builder = MemoryRecords.builder(
            buffer, magic, Compression.of(type).build(), timestampType, BASE_OFFSET, appendTime);
        Header[] none = new Header[0];
        Header[] headers = magic < 2 ? none : new Header[] {
            new RecordHeader("h", null), new RecordHeader("h", bytes("x")), new RecordHeader("", new byte[0]),
            new RecordHeader(ByteBuffer.wrap(new byte[] {(byte) 0xc3, (byte) 0x28}), ByteBuffer.wrap(bytes("y"))),
        };
        builder.appendWithOffset(100, 1_700_000_000_000L, bytes("key-0"), bytes("value-0"), none);
        builder.appendWithOffset(101, 0L, null, new byte[0], headers);
        builder.appendWithOffset(103, 1_700_000_000_001L, new byte[0], null, none);
        if (type != CompressionType.NONE) {
            byte[] large = new byte[70_000];
            for (int i = 0; i < large.length; i++) large[i] = (byte) (i / 1000);
            builder.appendWithOffset(104, 5L, bytes("large"), large, none);
        }
        MemoryRecords records = builder.build();
        ByteBuffer written = records.buffer();
        byte[] out = new byte[written.remaining()];
        written.get(out);
        String name = "v" + magic + " " + type.name + " " + timestampType.name;
        System.out.println(name + " " + HexFormat.of().formatHex(out));
    }

    static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }
}
