import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.Future;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** Writes records with every codec, with and without idempotence, and reads them back; a line per combination. */
public class Codecs {
    static final int RECORDS = 500;

    public static void main(String[] args) throws Exception {
        for (String codec : List.of("none", "gzip", "snappy", "lz4", "zstd")) {
            for (boolean idempotent : new boolean[] {true, false}) {
                String topic = args[1] + "-" + codec + "-" + idempotent;
                List<Long> offsets = produce(args[0], topic, codec, idempotent);
                System.out.printf("%s idempotent=%s offsets=%d-%d read=%d%n", codec, idempotent,
                        offsets.get(0), offsets.get(offsets.size() - 1), readBack(args[0], topic));
            }
        }
    }

    static List<Long> produce(String bootstrap, String topic, String codec, boolean idempotent) throws Exception {
        Properties settings = new Properties();
        settings.putAll(Map.of("bootstrap.servers", bootstrap, "compression.type", codec, "linger.ms", 5,
                "enable.idempotence", idempotent, "acks", "all", "batch.size", 4000));
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        try (var producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
            for (int n = 0; n < RECORDS; n++) {
                var record = new ProducerRecord<>(topic, 0, 1_700_000_000_000L + n, "key-" + n, value(n));
                record.headers().add("n", Integer.toString(n).getBytes());
                sent.add(producer.send(record));
            }
        }
        List<Long> offsets = new ArrayList<>();
        for (var each : sent) {
            offsets.add(each.get().offset());
        }
        return offsets;
    }

    /** How many records come back as they were sent, in their order. */
    static int readBack(String bootstrap, String topic) {
        Properties settings = new Properties();
        settings.putAll(Map.of("bootstrap.servers", bootstrap, "auto.offset.reset", "earliest"));
        int good = 0;
        try (var consumer = new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
            consumer.assign(List.of(new TopicPartition(topic, 0)));
            long deadline = System.nanoTime() + Duration.ofSeconds(30).toNanos();
            while (good < RECORDS && System.nanoTime() < deadline) {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(500))) {
                    boolean same = record.offset() == good && record.key().equals("key-" + good)
                            && record.value().equals(value(good)) && record.timestamp() == 1_700_000_000_000L + good
                            && new String(record.headers().lastHeader("n").value()).equals(Integer.toString(good));
                    if (!same) {
                        return good;
                    }
                    good++;
                }
            }
        }
        return good;
    }

    static String value(int n) {
        return ("value " + n + " ").repeat(1 + n % 7);
    }
}
