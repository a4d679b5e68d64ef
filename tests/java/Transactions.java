import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.AbortTransactionSpec;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ListTransactionsOptions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.ProducerState;
import org.apache.kafka.clients.admin.TransactionDescription;
import org.apache.kafka.clients.admin.TransactionState;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** A transactional producer, readers of both levels, and what administrators see of transactions; prints what it saw. */
public class Transactions {
    static final TopicPartition FIRST = new TopicPartition("payments", 0);
    static final TopicPartition SECOND = new TopicPartition("payments", 1);
    static String bootstrap;

    public static void main(String[] arguments) throws Exception {
        bootstrap = arguments[0];
        try (Admin admin = Admin.create(settings())) {
            admin.createTopics(List.of(new NewTopic("payments", 2, (short) 1))).all().get();
            features(admin);
            producing(admin);
            offsets(admin);
            fencing(admin);
            administration(admin);
            hanging(admin);
        }
    }

    static void features(Admin admin) throws Exception {
        var found = admin.describeFeatures().featureMetadata().get().finalizedFeatures();
        tell("transaction.version", found.get("transaction.version").maxVersionLevel());
    }

    static void producing(Admin admin) throws Exception {
        try (KafkaProducer<String, String> producer = producer("java", 60_000)) {
            producer.initTransactions();
            for (int number = 0; number < 6; number++) {
                producer.beginTransaction();
                producer.send(new ProducerRecord<>("payments", 0, "k", "a" + number));
                producer.send(new ProducerRecord<>("payments", 1, "k", "b" + number));
                if (number % 2 == 0) {
                    producer.commitTransaction();
                } else {
                    producer.flush();
                    producer.abortTransaction();
                }
            }
            producer.beginTransaction();
            producer.commitTransaction();
            producer.beginTransaction();
            producer.abortTransaction();
        }
        tell("committed", read(FIRST, "read_committed"));
        tell("committed", read(SECOND, "read_committed"));
        tell("uncommitted", read(FIRST, "read_uncommitted"));
    }

    static void offsets(Admin admin) throws Exception {
        try (KafkaProducer<String, String> producer = producer("java-offsets", 60_000)) {
            producer.initTransactions();
            for (long offset : new long[] {3, 5}) {
                producer.beginTransaction();
                producer.sendOffsetsToTransaction(Map.of(FIRST, new OffsetAndMetadata(offset)), group());
                if (offset == 3) {
                    producer.commitTransaction();
                } else {
                    producer.abortTransaction();
                }
            }
        }
        var committed = admin.listConsumerGroupOffsets("java-readers").partitionsToOffsetAndMetadata().get();
        tell("offset", committed.get(FIRST).offset());
    }

    static void fencing(Admin admin) throws Exception {
        try (KafkaProducer<String, String> first = producer("java-fenced", 60_000);
             KafkaProducer<String, String> second = producer("java-fenced", 60_000)) {
            first.initTransactions();
            first.beginTransaction();
            first.send(new ProducerRecord<>("payments", 0, "k", "never")).get();
            second.initTransactions();
            tell("replaced", failure(first::commitTransaction));
            second.beginTransaction();
            second.send(new ProducerRecord<>("payments", 0, "k", "second")).get();
            second.commitTransaction();
            second.beginTransaction();
            second.send(new ProducerRecord<>("payments", 0, "k", "never")).get();
            admin.fenceProducers(Set.of("java-fenced")).all().get();
            tell("fenced", failure(second::commitTransaction));
        }
        try (KafkaProducer<String, String> slow = producer("java-slow", 1_000)) {
            slow.initTransactions();
            slow.beginTransaction();
            slow.send(new ProducerRecord<>("payments", 1, "k", "never")).get();
            while (describe(admin, "java-slow").state() != TransactionState.COMPLETE_ABORT) {
                TimeUnit.MILLISECONDS.sleep(50);
            }
            tell("late", failure(slow::commitTransaction));
        }
        List<String> seen = read(FIRST, "read_committed");
        tell("last", seen.get(seen.size() - 1));
    }

    static void administration(Admin admin) throws Exception {
        try (KafkaProducer<String, String> producer = producer("java-described", 45_000)) {
            producer.initTransactions();
            tell("state", describe(admin, "java-described").state());
            producer.beginTransaction();
            producer.send(new ProducerRecord<>("payments", 1, "k", "described")).get();
            TransactionDescription found = describe(admin, "java-described");
            tell("state", found.state() + " " + found.transactionTimeoutMs() + " " + found.topicPartitions());
            tell("began", found.transactionStartTimeMs().isPresent());
            tell("ongoing", admin.listTransactions(
                new ListTransactionsOptions().filterStates(Set.of(TransactionState.ONGOING))).all().get().size());
            tell("matching", admin.listTransactions(
                new ListTransactionsOptions().filterOnTransactionalIdPattern("java-d.*")).all().get().size());
            tell("long", admin.listTransactions(
                new ListTransactionsOptions().filterOnDuration(3_600_000)).all().get().size());
            tell("producing", producing(admin, SECOND, found.producerId()).currentTransactionStartOffset().isPresent());
            producer.commitTransaction();
            tell("producing", producing(admin, SECOND, found.producerId()).currentTransactionStartOffset().isPresent());
        }
        tell("nobody", failure(() -> describe(admin, "nobody")));
    }

    static void hanging(Admin admin) throws Exception {
        try (KafkaProducer<String, String> producer = producer("java-hanging", 60_000)) {
            producer.initTransactions();
            producer.beginTransaction();
            producer.send(new ProducerRecord<>("payments", 1, "k", "hangs")).get();
            long id = describe(admin, "java-hanging").producerId();
            ProducerState state = producing(admin, SECOND, id);
            admin.abortTransaction(new AbortTransactionSpec(
                SECOND, id, (short) state.producerEpoch(), state.coordinatorEpoch().orElse(0))).all().get();
            tell("hangs", producing(admin, SECOND, id).currentTransactionStartOffset().isPresent());
        }
        List<String> seen = read(SECOND, "read_committed");
        tell("last", seen.get(seen.size() - 1));
    }

    static ConsumerGroupMetadata group() {
        Properties settings = settings();
        settings.put("group.id", "java-readers");
        try (KafkaConsumer<String, String> consumer =
                 new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
            return consumer.groupMetadata();
        }
    }

    static TransactionDescription describe(Admin admin, String id) throws Exception {
        return admin.describeTransactions(Set.of(id)).description(id).get();
    }

    static ProducerState producing(Admin admin, TopicPartition partition, long id) throws Exception {
        var found = admin.describeProducers(Set.of(partition)).partitionResult(partition).get().activeProducers();
        return found.stream().filter(each -> each.producerId() == id).findFirst().get();
    }

    static KafkaProducer<String, String> producer(String id, int timeoutMs) {
        Properties settings = settings();
        settings.put("transactional.id", id);
        settings.put("transaction.timeout.ms", timeoutMs);
        return new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
    }

    /** What a reader of this level sees up to what is the end for it when it begins. */
    static List<String> read(TopicPartition partition, String level) {
        Properties settings = settings();
        settings.put("isolation.level", level);
        List<String> seen = new ArrayList<>();
        try (KafkaConsumer<String, String> consumer =
                 new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
            consumer.assign(List.of(partition));
            consumer.seekToBeginning(List.of(partition));
            long end = consumer.endOffsets(List.of(partition)).get(partition);
            while (consumer.position(partition) < end) {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofSeconds(1))) {
                    seen.add(record.value());
                }
            }
        }
        return seen;
    }

    static Properties settings() {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        return settings;
    }

    interface Step {
        void run() throws Exception;
    }

    static String failure(Step step) throws Exception {
        try {
            step.run();
            return "none";
        } catch (ExecutionException error) {
            return error.getCause().getClass().getSimpleName();
        } catch (RuntimeException error) {
            return error.getClass().getSimpleName();
        }
    }

    static void tell(String what, Object seen) {
        System.out.println(what + ": " + seen);
    }
}
