import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.ExecutionException;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.ElectionType;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.quota.ClientQuotaFilter;
import org.apache.kafka.common.serialization.StringSerializer;

/** The calls of the admin client, one after the other; a line with each answer. */
public class Administration {
    public static void main(String[] args) throws Exception {
        String topic = args[1];
        TopicPartition first = new TopicPartition(topic, 0);
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", args[0]))) {
            NewTopic wanted = new NewTopic(topic, Optional.of(2), Optional.empty()).configs(Map.of("retention.ms", "5000"));
            var created = admin.createTopics(List.of(wanted));
            tell("created", created.numPartitions(topic).get() + " " + created.config(topic).get().get("retention.ms").value());
            tell("created again", failure(admin.createTopics(List.of(wanted)).all()));
            tell("listed", admin.listTopics().names().get().contains(topic));
            admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(3))).all().get();
            var described = admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic);
            tell("described", described.partitions().size() + " by id " + described.topicId().equals(created.topicId(topic).get()));
            tell("shrunk", failure(admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(1))).all()));

            admin.incrementalAlterConfigs(Map.of(resource, List.of(
                    new AlterConfigOp(new ConfigEntry("max.message.bytes", "2000000"), AlterConfigOp.OpType.SET),
                    new AlterConfigOp(new ConfigEntry("retention.ms", ""), AlterConfigOp.OpType.DELETE)))).all().get();
            var config = admin.describeConfigs(List.of(resource)).all().get().get(resource);
            tell("config", config.get("max.message.bytes").value() + " " + config.get("max.message.bytes").source()
                    + " " + config.get("retention.ms").value() + " " + config.get("retention.ms").source());
            tell("unknown config", failure(admin.incrementalAlterConfigs(Map.of(resource, List.of(
                    new AlterConfigOp(new ConfigEntry("no.such", "1"), AlterConfigOp.OpType.SET)))).all()));

            produce(args[0], topic);
            var specs = Map.of("earliest", OffsetSpec.earliest(), "latest", OffsetSpec.latest(),
                    "max timestamp", OffsetSpec.maxTimestamp(), "at a time", OffsetSpec.forTimestamp(1003));
            for (var spec : new TreeMap<>(specs).entrySet()) {
                var found = admin.listOffsets(Map.of(first, spec.getValue())).partitionResult(first).get();
                tell(spec.getKey(), found.offset());
            }
            tell("deleted records", admin.deleteRecords(Map.of(first, RecordsToDelete.beforeOffset(4)))
                    .lowWatermarks().get(first).get().lowWatermark());
            tell("deleted too many", failure(admin.deleteRecords(Map.of(first, RecordsToDelete.beforeOffset(99))).all()));

            String group = topic + "-group";
            admin.alterConsumerGroupOffsets(group, Map.of(first, new OffsetAndMetadata(7, "why"))).all().get();
            var committed = admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get();
            tell("committed", committed.get(first).offset() + " " + committed.get(first).metadata());
            tell("groups", admin.listGroups().all().get().stream().anyMatch(each -> each.groupId().equals(group)));
            tell("group", admin.describeConsumerGroups(List.of(group)).all().get().get(group).groupState());
            tell("no group", failure(admin.describeConsumerGroups(List.of("no-such")).all()));
            tell("forgotten offset", failure(admin.deleteConsumerGroupOffsets(group, Set.of(first)).all()));
            tell("deleted group", failure(admin.deleteConsumerGroups(List.of(group)).all()));

            tell("nodes", admin.describeCluster().nodes().get().size());
            int node = admin.describeCluster().controller().get().id();
            var replicas = admin.describeLogDirs(List.of(node)).allDescriptions().get().get(node).values().stream()
                    .flatMap(folder -> folder.replicaInfos().entrySet().stream())
                    .filter(each -> each.getKey().topic().equals(topic))
                    .collect(Collectors.toMap(each -> each.getKey().partition(), each -> each.getValue().size() > 0));
            tell("sizes", new TreeMap<>(replicas));
            tell("elected", admin.electLeaders(ElectionType.PREFERRED, Set.of(first)).partitions().get().get(first)
                    .map(error -> error.getClass().getSimpleName()).orElse("moved"));
            tell("reassignments", admin.listPartitionReassignments().reassignments().get().size());
            tell("quotas", admin.describeClientQuotas(ClientQuotaFilter.all()).entities().get().size());
            tell("producers", admin.describeProducers(List.of(first)).partitionResult(first).get().activeProducers().size());
            tell("features", admin.describeFeatures().featureMetadata().get().finalizedFeatures().size());
            tell("acls", failure(admin.describeAcls(AclBindingFilter.ANY).values()));
            tell("transactions", failure(admin.listTransactions().all()));
            admin.deleteTopics(List.of(topic)).all().get();
            tell("deleted", failure(admin.describeTopics(List.of(topic)).allTopicNames()));
        }
    }

    static void produce(String bootstrap, String topic) throws Exception {
        Properties settings = new Properties();
        settings.putAll(Map.of("bootstrap.servers", bootstrap));
        try (var producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
            for (int n = 0; n < 10; n++) {
                producer.send(new ProducerRecord<>(topic, 0, 1000L + n, null, "record")).get();
            }
        }
    }

    static void tell(String what, Object answer) {
        System.out.println(what + ": " + answer);
    }

    static String failure(KafkaFuture<?> call) throws InterruptedException {
        try {
            call.get();
            return "none";
        } catch (ExecutionException error) {
            return error.getCause().getClass().getSimpleName();
        }
    }
}
