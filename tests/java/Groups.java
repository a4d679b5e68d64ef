import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.RebalanceInProgressException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * A group whose members come and go while records arrive: how many were lost, and how many processed twice.
 * Arguments: bootstrap, topic, assignor, members.
 */
public class Groups {
    static final int PARTITIONS = 12;
    static final int RECORDS = 6_000;
    static final Duration PATIENCE = Duration.ofSeconds(90);

    static String bootstrap;
    static String topic;
    static String assignor;
    static final Map<String, AtomicInteger> seen = new ConcurrentHashMap<>();
    static final Map<TopicPartition, String> owners = new ConcurrentHashMap<>();
    static final ConcurrentLinkedQueue<String> trouble = new ConcurrentLinkedQueue<>();
    static final AtomicInteger rebalances = new AtomicInteger();
    static final AtomicInteger uncommitted = new AtomicInteger();

    public static void main(String[] args) throws Exception {
        bootstrap = args[0];
        topic = args[1];
        assignor = args[2];
        int members = Integer.parseInt(args[3]);
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            admin.createTopics(List.of(new NewTopic(topic, PARTITIONS, (short) 1))).all().get();
        }
        Thread producer = new Thread(Groups::produce);
        producer.start();
        List<Member> all = new ArrayList<>();
        for (int n = 0; n < members; n++) {
            all.add(new Member("member-" + n));
            if (n % 3 == 1) {
                Thread.sleep(400);
            }
        }
        waitFor(() -> owners.size() == PARTITIONS);
        for (int n = 0; n < members / 2; n++) {
            all.get(n).leave();
        }
        producer.join();
        waitFor(() -> seen.size() == RECORDS && owners.size() == PARTITIONS);
        for (Member member : all) {
            member.leave();
        }
        long twice = seen.values().stream().filter(times -> times.get() > 1).count();
        System.out.printf("seen=%d twice=%d uncommitted=%d rebalances=%d trouble=%s%n", seen.size(), twice,
                uncommitted.get(), rebalances.get(), trouble);
    }

    static void produce() {
        Properties settings = new Properties();
        settings.putAll(Map.of("bootstrap.servers", bootstrap, "linger.ms", 5));
        try (var producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
            for (int n = 0; n < RECORDS; n++) {
                producer.send(new ProducerRecord<>(topic, n % PARTITIONS, null, "record-" + n));
                if (n % 20 == 0) {
                    Thread.sleep(10);
                }
            }
        } catch (InterruptedException error) {
            trouble.add(error.toString());
        }
    }

    interface Question {
        boolean isSo();
    }

    static void waitFor(Question question) throws InterruptedException {
        long deadline = System.nanoTime() + PATIENCE.toNanos();
        while (!question.isSo() && System.nanoTime() < deadline) {
            Thread.sleep(20);
        }
    }

    /**
     * Processes, commits after every poll and before it gives a partition away: nothing is processed twice but what
     * was lost uncommitted, as when the member leaves in the middle of a rebalance.
     */
    static class Member implements ConsumerRebalanceListener {
        final String name;
        final AtomicBoolean leaving = new AtomicBoolean();
        int pending;
        final KafkaConsumer<String, String> consumer;
        final Thread thread;

        Member(String name) {
            this.name = name;
            Properties settings = new Properties();
            settings.putAll(Map.of("bootstrap.servers", bootstrap, "group.id", topic, "client.id", name,
                    "enable.auto.commit", false, "auto.offset.reset", "earliest", "max.poll.records", 50,
                    "heartbeat.interval.ms", 200, "partition.assignment.strategy", assignor));
            consumer = new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
            thread = new Thread(this::run, name);
            thread.start();
        }

        void leave() throws InterruptedException {
            leaving.set(true);
            thread.join();
        }

        void run() {
            try (consumer) {
                consumer.subscribe(List.of(topic), this);
                while (!leaving.get()) {
                    for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(100))) {
                        seen.computeIfAbsent(record.value(), key -> new AtomicInteger()).incrementAndGet();
                        pending++;
                    }
                    commit();
                }
            } catch (RuntimeException error) {
                trouble.add(name + ": " + error);
            }
        }

        void commit() {
            try {
                consumer.commitSync();
                pending = 0;
            } catch (RebalanceInProgressException error) {
                // The next poll takes part in the rebalance; what it takes away is committed first.
            }
        }

        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
            rebalances.incrementAndGet();
            for (TopicPartition partition : partitions) {
                String other = owners.put(partition, name);
                if (other != null && !other.equals(name)) {
                    trouble.add(partition + " of " + other + " was given to " + name);
                }
            }
        }

        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
            commit();
            onPartitionsLost(partitions);
        }

        @Override
        public void onPartitionsLost(Collection<TopicPartition> partitions) {
            uncommitted.addAndGet(pending);
            for (TopicPartition partition : partitions) {
                owners.remove(partition, name);
            }
        }
    }
}
