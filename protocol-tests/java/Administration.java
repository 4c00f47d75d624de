import com.fasterxml.jackson.databind.JsonNode;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ListOffsetsOptions;
import org.apache.kafka.clients.admin.ListOffsetsResult.ListOffsetsResultInfo;
import org.apache.kafka.clients.admin.ListTopicsOptions;
import org.apache.kafka.clients.admin.MemberDescription;
import org.apache.kafka.clients.admin.NewPartitionReassignment;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.ElectionType;
import org.apache.kafka.common.IsolationLevel;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.TopicPartitionInfo;
import org.apache.kafka.common.acl.AccessControlEntry;
import org.apache.kafka.common.acl.AclBinding;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.ElectionNotNeededException;
import org.apache.kafka.common.errors.GroupIdNotFoundException;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;
import org.apache.kafka.common.quota.ClientQuotaAlteration;
import org.apache.kafka.common.quota.ClientQuotaEntity;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourceType;

import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.Callable;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.stream.Collectors;

/** Requests to a cluster's administration; one admin client per bootstrap list. */
final class Administration {
    private static final long WAIT_MS = 30_000;

    private final Map<String, Admin> clients = new ConcurrentHashMap<>();

    Object perform(String op, JsonNode arguments) throws Exception {
        String bootstrap = arguments.get("bootstrap").asText();
        if (op.equals("ends")) {
            // A client of its own: one that lives long waits for a leader that was killed, and hangs with a broker that hangs.
            try (Admin impatient = connect(bootstrap, "2000", "5000")) {
                return ends(impatient, arguments);
            }
        }
        Admin admin = clients.computeIfAbsent(bootstrap, servers -> connect(servers, "30000", "60000"));
        switch (op) {
            case "topic.create": return createTopic(admin, arguments);
            case "partitions.create": return createPartitions(admin, arguments);
            case "topic.delete": return deleteTopic(admin, arguments);
            case "topic.describe": return describe(admin, topic(arguments));
            case "topics": return admin.listTopics(new ListTopicsOptions().listInternal(true)).names().get();
            case "configs.describe": return describeConfigs(admin, arguments);
            case "configs.alter": return alterConfigs(admin, arguments);
            case "acl.create": return createAcl(admin, arguments);
            case "acl.change": return changeAcl(admin, arguments);
            case "acls": return acls(admin);
            case "quota.alter": return alterQuota(admin, arguments);
            case "records.delete": return deleteRecords(admin, arguments);
            case "offsets": return offsets(admin, arguments);
            case "groups": return admin.listGroups().all().get().stream().map(group -> group.groupId()).collect(Collectors.toList());
            case "group.describe": return describeGroup(admin, arguments);
            case "group.commit": return commit(admin, arguments);
            case "group.offsets": return groupOffsets(admin, arguments);
            case "leader.move": return moveLeader(admin, arguments);
            case "brokers": return admin.describeCluster().nodes().get().stream().map(Node::id).collect(Collectors.toList());
            default: throw new IllegalArgumentException("unknown request " + op);
        }
    }

    private static Admin connect(String bootstrap, String requestTimeoutMs, String apiTimeoutMs) {
        return Admin.create(Map.of("bootstrap.servers", bootstrap, "reconnect.backoff.max.ms", "200",
                "request.timeout.ms", requestTimeoutMs, "default.api.timeout.ms", apiTimeoutMs));
    }

    private static Object createTopic(Admin admin, JsonNode arguments) throws Exception {
        JsonNode assignment = arguments.get("assignment");
        NewTopic topic;
        if (assignment != null) {
            Map<Integer, List<Integer>> replicas = new HashMap<>();
            for (int i = 0; i < assignment.size(); i++) replicas.put(i, integers(assignment.get(i)));
            topic = new NewTopic(topic(arguments), replicas);
        } else {
            topic = new NewTopic(topic(arguments), Optional.of(arguments.get("partitions").asInt()), Optional.empty());
        }
        Map<String, String> configs = new HashMap<>();
        arguments.get("configs").properties().forEach(entry -> configs.put(entry.getKey(), entry.getValue().asText()));
        admin.createTopics(List.of(topic.configs(configs))).all().get();
        int partitions = assignment != null ? assignment.size() : arguments.get("partitions").asInt();
        await("leaders of " + topic.name(), () -> led(describe(admin, topic.name()), partitions));
        return null;
    }

    private static Object createPartitions(Admin admin, JsonNode arguments) throws Exception {
        int total = arguments.get("total").asInt();
        admin.createPartitions(Map.of(topic(arguments), NewPartitions.increaseTo(total))).all().get();
        await("new partitions", () -> led(describe(admin, topic(arguments)), total));
        return null;
    }

    private static Object deleteTopic(Admin admin, JsonNode arguments) throws Exception {
        admin.deleteTopics(List.of(topic(arguments))).all().get();
        await("the end of the topic", () -> describe(admin, topic(arguments)) == null);
        return null;
    }

    private static List<Map<String, Object>> describe(Admin admin, String topic) throws Exception {
        TopicDescription description;
        try {
            description = admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic);
        } catch (ExecutionException error) {
            if (error.getCause() instanceof UnknownTopicOrPartitionException) return null;
            throw error;
        }
        List<Map<String, Object>> partitions = new ArrayList<>();
        for (TopicPartitionInfo info : description.partitions()) {
            Map<String, Object> map = new LinkedHashMap<>();
            map.put("partition", info.partition());
            map.put("leader", info.leader() == null ? -1 : info.leader().id());
            map.put("replicas", ids(info.replicas()));
            map.put("in_sync", ids(info.isr()));
            partitions.add(map);
        }
        return partitions;
    }

    private static boolean led(List<Map<String, Object>> partitions, int count) {
        return partitions != null && partitions.size() == count
                && partitions.stream().noneMatch(partition -> partition.get("leader").equals(-1));
    }

    private static Object describeConfigs(Admin admin, JsonNode arguments) throws Exception {
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic(arguments));
        Map<String, String> configs = new TreeMap<>();
        for (ConfigEntry entry : admin.describeConfigs(List.of(resource)).all().get().get(resource).entries()) {
            if (entry.source() == ConfigEntry.ConfigSource.DYNAMIC_TOPIC_CONFIG) configs.put(entry.name(), entry.value());
        }
        return configs;
    }

    private static Object alterConfigs(Admin admin, JsonNode arguments) throws Exception {
        ConfigResource resource = arguments.has("topic")
                ? new ConfigResource(ConfigResource.Type.TOPIC, topic(arguments))
                : new ConfigResource(ConfigResource.Type.BROKER, "");
        Collection<AlterConfigOp> changes = new ArrayList<>();
        arguments.get("configs").properties().forEach(entry -> {
            boolean delete = entry.getValue().isNull();
            changes.add(new AlterConfigOp(new ConfigEntry(entry.getKey(), delete ? null : entry.getValue().asText()),
                    delete ? AlterConfigOp.OpType.DELETE : AlterConfigOp.OpType.SET));
        });
        admin.incrementalAlterConfigs(Map.of(resource, changes)).all().get();
        return null;
    }

    private static Object createAcl(Admin admin, JsonNode arguments) throws Exception {
        ResourcePattern pattern = new ResourcePattern(
                ResourceType.TOPIC, topic(arguments), PatternType.fromString(arguments.get("pattern").asText().toUpperCase(java.util.Locale.ROOT)));
        AccessControlEntry entry = new AccessControlEntry(
                arguments.get("principal").asText(), "*", AclOperation.fromString(arguments.get("operation").asText()),
                AclPermissionType.fromString(arguments.get("permission").asText()));
        admin.createAcls(List.of(new AclBinding(pattern, entry))).all().get();
        return null;
    }

    /** Gives or takes what a line of {@link #acls} says. */
    private static Object changeAcl(Admin admin, JsonNode arguments) throws Exception {
        String[] words = arguments.get("acl").asText().split(" ");
        ResourcePattern pattern =
                new ResourcePattern(ResourceType.fromString(words[1]), words[2], PatternType.fromString(words[0]));
        AccessControlEntry entry = new AccessControlEntry(
                words[3], words[4], AclOperation.fromString(words[5]), AclPermissionType.fromString(words[6]));
        AclBinding acl = new AclBinding(pattern, entry);
        if (arguments.get("give").asBoolean()) {
            admin.createAcls(List.of(acl)).all().get();
        } else {
            admin.deleteAcls(List.of(acl.toFilter())).all().get();
        }
        return null;
    }

    private static Object acls(Admin admin) throws Exception {
        return admin.describeAcls(AclBindingFilter.ANY).values().get().stream().map(acl -> String.join(" ",
                acl.pattern().patternType().name(), acl.pattern().resourceType().name(), acl.pattern().name(),
                acl.entry().principal(), acl.entry().host(), acl.entry().operation().name(),
                acl.entry().permissionType().name())).sorted().collect(Collectors.toList());
    }

    private static Object alterQuota(Admin admin, JsonNode arguments) throws Exception {
        ClientQuotaEntity client = new ClientQuotaEntity(Map.of(ClientQuotaEntity.CLIENT_ID, arguments.get("client_id").asText()));
        JsonNode value = arguments.get("value");
        ClientQuotaAlteration.Op change = new ClientQuotaAlteration.Op(
                arguments.get("quota").asText(), value.isNull() ? null : value.asDouble());
        admin.alterClientQuotas(List.of(new ClientQuotaAlteration(client, List.of(change)))).all().get();
        return null;
    }

    private static Object deleteRecords(Admin admin, JsonNode arguments) throws Exception {
        RecordsToDelete before = RecordsToDelete.beforeOffset(arguments.get("offset").asLong());
        admin.deleteRecords(Map.of(partition(arguments), before)).all().get();
        return null;
    }

    private static Object offsets(Admin admin, JsonNode arguments) throws Exception {
        String topic = topic(arguments);
        Set<TopicPartition> partitions = describe(admin, topic).stream()
                .map(partition -> new TopicPartition(topic, (Integer) partition.get("partition"))).collect(Collectors.toSet());
        IsolationLevel isolation = IsolationLevel.valueOf(arguments.get("isolation").asText().toUpperCase(java.util.Locale.ROOT));
        Map<TopicPartition, ListOffsetsResultInfo> first = list(admin, partitions, OffsetSpec.earliest(), isolation);
        Map<TopicPartition, ListOffsetsResultInfo> last = list(admin, partitions, OffsetSpec.latest(), isolation);
        List<Map<String, Object>> result = new ArrayList<>();
        for (TopicPartition partition : partitions) {
            result.add(Map.of("partition", partition.partition(), "earliest", first.get(partition).offset(),
                    "latest", last.get(partition).offset()));
        }
        return result;
    }

    private static Object ends(Admin admin, JsonNode arguments) throws Exception {
        Set<TopicPartition> partitions = integers(arguments.get("partitions")).stream()
                .map(partition -> new TopicPartition(topic(arguments), partition)).collect(Collectors.toSet());
        List<Map<String, Object>> result = new ArrayList<>();
        list(admin, partitions, OffsetSpec.latest(), IsolationLevel.READ_UNCOMMITTED).forEach((partition, info) ->
                result.add(Map.of("partition", partition.partition(), "latest", info.offset())));
        return result;
    }

    private static Map<TopicPartition, ListOffsetsResultInfo> list(
            Admin admin, Set<TopicPartition> partitions, OffsetSpec spec, IsolationLevel isolation) throws Exception {
        Map<TopicPartition, OffsetSpec> wanted = partitions.stream().collect(Collectors.toMap(partition -> partition, partition -> spec));
        return admin.listOffsets(wanted, new ListOffsetsOptions(isolation)).all().get();
    }

    private static Object describeGroup(Admin admin, JsonNode arguments) throws Exception {
        String group = arguments.get("group").asText();
        List<Map<String, Object>> members = new ArrayList<>();
        try {
            for (MemberDescription member : admin.describeConsumerGroups(List.of(group)).all().get().get(group).members()) {
                members.add(Map.of("member_id", member.consumerId(), "client_id", member.clientId(), "host", member.host(),
                        "partitions", member.assignment().topicPartitions().size()));
            }
        } catch (ExecutionException error) {
            if (!(error.getCause() instanceof GroupIdNotFoundException)) throw error;
        }
        return members;
    }

    private static Object commit(Admin admin, JsonNode arguments) throws Exception {
        OffsetAndMetadata offset = new OffsetAndMetadata(arguments.get("offset").asLong());
        admin.alterConsumerGroupOffsets(arguments.get("group").asText(), Map.of(partition(arguments), offset)).all().get();
        return null;
    }

    private static Object groupOffsets(Admin admin, JsonNode arguments) throws Exception {
        List<Map<String, Object>> result = new ArrayList<>();
        admin.listConsumerGroupOffsets(arguments.get("group").asText()).partitionsToOffsetAndMetadata().get()
                .forEach((partition, offset) -> {
                    if (offset != null) {
                        result.add(Map.of("topic", partition.topic(), "partition", partition.partition(), "offset", offset.offset()));
                    }
                });
        return result;
    }

    private static Object moveLeader(Admin admin, JsonNode arguments) throws Exception {
        TopicPartition partition = partition(arguments);
        List<Integer> replicas = integers(arguments.get("replicas"));
        admin.alterPartitionReassignments(Map.of(partition, Optional.of(new NewPartitionReassignment(replicas)))).all().get();
        await("the reassignment", () -> admin.listPartitionReassignments(Set.of(partition)).reassignments().get().isEmpty());
        await("the new leader", () -> {
            try {
                admin.electLeaders(ElectionType.PREFERRED, Set.of(partition)).all().get();
            } catch (ExecutionException error) {
                if (!(error.getCause() instanceof ElectionNotNeededException)) return false;
            }
            return describe(admin, partition.topic()).get(partition.partition()).get("leader").equals(replicas.get(0));
        });
        return null;
    }

    private static void await(String what, Callable<Boolean> condition) throws Exception {
        long deadline = System.currentTimeMillis() + WAIT_MS;
        while (!condition.call()) {
            if (System.currentTimeMillis() > deadline) throw new IllegalStateException("timed out waiting for " + what);
            Thread.sleep(20);
        }
    }

    private static String topic(JsonNode arguments) {
        return arguments.get("topic").asText();
    }

    private static TopicPartition partition(JsonNode arguments) {
        return new TopicPartition(topic(arguments), arguments.get("partition").asInt());
    }

    private static List<Integer> ids(List<Node> nodes) {
        return nodes.stream().map(Node::id).collect(Collectors.toList());
    }

    private static List<Integer> integers(JsonNode array) {
        List<Integer> list = new ArrayList<>();
        array.forEach(node -> list.add(node.asInt()));
        return list;
    }
}
