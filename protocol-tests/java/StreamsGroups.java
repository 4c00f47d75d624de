import com.fasterxml.jackson.databind.JsonNode;
import org.apache.kafka.common.message.StreamsGroupHeartbeatRequestData;
import org.apache.kafka.common.message.StreamsGroupHeartbeatRequestData.Subtopology;
import org.apache.kafka.common.message.StreamsGroupHeartbeatRequestData.Topology;
import org.apache.kafka.common.message.StreamsGroupHeartbeatResponseData;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.requests.RequestHeader;
import org.apache.kafka.common.requests.ResponseHeader;
import org.apache.kafka.common.requests.StreamsGroupHeartbeatRequest;

import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.net.Socket;
import java.nio.ByteBuffer;
import java.util.List;

/** A group of Kafka Streams' own protocol (KIP-1071), made by the heartbeats of a member that joins and leaves. */
final class StreamsGroups {
    private static final short VERSION = 0;
    private static final int LEAVE = -1;

    private StreamsGroups() { }

    static Object make(JsonNode arguments) throws Exception {
        String[] address = arguments.get("bootstrap").asText().split(",")[0].split(":");
        try (Socket socket = new Socket(address[0], Integer.parseInt(address[1]))) {
            socket.setSoTimeout(30_000);
            StreamsGroupHeartbeatRequestData join = heartbeat(arguments, 0).setRebalanceTimeoutMs(10_000)
                    .setProcessId("process").setTopology(new Topology().setEpoch(0).setSubtopologies(List.of(
                            new Subtopology().setSubtopologyId("0").setSourceTopics(List.of(arguments.get("topic").asText())))));
            exchange(socket, join);
            exchange(socket, heartbeat(arguments, LEAVE));
        }
        return null;
    }

    private static StreamsGroupHeartbeatRequestData heartbeat(JsonNode arguments, int epoch) {
        return new StreamsGroupHeartbeatRequestData().setGroupId(arguments.get("group").asText()).setMemberId("member-of-a-test")
                .setMemberEpoch(epoch).setActiveTasks(List.of()).setStandbyTasks(List.of()).setWarmupTasks(List.of());
    }

    private static void exchange(Socket socket, StreamsGroupHeartbeatRequestData data) throws Exception {
        RequestHeader header = new RequestHeader(ApiKeys.STREAMS_GROUP_HEARTBEAT, VERSION, "protocol-tests", 1);
        ByteBuffer request = new StreamsGroupHeartbeatRequest.Builder(data).build(VERSION).serializeWithHeader(header);
        DataOutputStream out = new DataOutputStream(socket.getOutputStream());
        byte[] bytes = new byte[request.remaining()];
        request.get(bytes);
        out.writeInt(bytes.length);
        out.write(bytes);
        out.flush();
        DataInputStream in = new DataInputStream(socket.getInputStream());
        ByteBuffer reply = ByteBuffer.wrap(in.readNBytes(in.readInt()));
        ResponseHeader.parse(reply, header.apiKey().responseHeaderVersion(VERSION));
        StreamsGroupHeartbeatResponseData answer =
                new StreamsGroupHeartbeatResponseData(new ByteBufferAccessor(reply), VERSION);
        if (answer.errorCode() != 0) {
            throw new IllegalStateException("error " + answer.errorCode() + ": " + answer.errorMessage());
        }
    }
}
