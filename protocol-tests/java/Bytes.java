import com.fasterxml.jackson.databind.JsonNode;
import java.util.HexFormat;

/** Bytes travel as hexadecimal text, null as null. */
final class Bytes {
    private static final HexFormat HEX = HexFormat.of();

    private Bytes() { }

    static byte[] from(JsonNode node) {
        return node == null || node.isNull() ? null : HEX.parseHex(node.asText());
    }

    static String text(byte[] bytes) {
        return bytes == null ? null : HEX.formatHex(bytes);
    }
}
