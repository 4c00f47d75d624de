import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;

import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;

/**
 * The Java client as a process that is asked over pipes: one JSON object per line,
 * {"id": 1, "op": "read", "arguments": {...}} in, {"id": 1, "result": ...} or {"id": 1, "error": "..."} out.
 * Requests run side by side. The process ends when its standard input closes.
 */
final class ClientAgent {
    static final ObjectMapper JSON = new ObjectMapper();

    private static final PrintStream REPLIES =
            new PrintStream(new FileOutputStream(FileDescriptor.out), false, StandardCharsets.UTF_8);
    private static final Producers PRODUCERS = new Producers();
    private static final GroupMembers MEMBERS = new GroupMembers();
    private static final Administration ADMINISTRATION = new Administration();

    private ClientAgent() { }

    public static void main(String[] args) throws Exception {
        // Whatever a library prints must not get between the replies.
        System.setOut(System.err);
        ExecutorService threads = Executors.newCachedThreadPool();
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        String line;
        while ((line = requests.readLine()) != null) {
            JsonNode request = JSON.readTree(line);
            threads.submit(() -> reply(request));
        }
        Runtime.getRuntime().halt(0);
    }

    private static void reply(JsonNode request) {
        ObjectNode reply = JSON.createObjectNode();
        reply.set("id", request.get("id"));
        try {
            reply.set("result", JSON.valueToTree(perform(request.get("op").asText(), request.get("arguments"))));
        } catch (Throwable error) {
            reply.put("error", describe(error));
        }
        String line = reply.toString();
        synchronized (REPLIES) {
            REPLIES.println(line);
            REPLIES.flush();
        }
    }

    private static Object perform(String op, JsonNode arguments) throws Exception {
        switch (op) {
            case "hello": return "hello";
            case "producer.open": return PRODUCERS.open(arguments);
            case "producer.run": return PRODUCERS.run(arguments);
            case "latency": return Latency.measure(arguments);
            case "producer.load": return PRODUCERS.load(arguments);
            case "producer.close": return PRODUCERS.close(arguments);
            case "group.join": return MEMBERS.join(arguments);
            case "group.leave": return MEMBERS.leave(arguments);
            case "group.read": return GroupReader.read(arguments);
            case "group.streams": return StreamsGroups.make(arguments);
            case "mirror.translate": return Mirrors.translate(arguments);
            case "mirror.describe": return Mirrors.describe(arguments);
            case "read": return Reader.read(arguments);
            default: return ADMINISTRATION.perform(op, arguments);
        }
    }

    /** The whole chain of causes in one line: a wrapped exception alone says too little. */
    private static String describe(Throwable error) {
        StringBuilder text = new StringBuilder();
        for (Throwable cause = error; cause != null; cause = cause.getCause()) {
            if (text.length() > 0) text.append(" <- ");
            text.append(cause.getClass().getSimpleName()).append(": ").append(cause.getMessage());
        }
        StackTraceElement[] stack = error.getStackTrace();
        if (stack.length > 0) text.append(" at ").append(stack[0]);
        return text.toString();
    }
}
