import java.util.Map;
import org.apache.kafka.clients.admin.Admin;

/** Lists groups again and again for a while; prints when it has begun, and how many milliseconds the slowest took. */
public class ListGroups {
    public static void main(String[] args) throws Exception {
        long lastsMs = Long.parseLong(args[1]);
        try (Admin admin = Admin.create(Map.<String, Object>of("bootstrap.servers", args[0]))) {
            admin.listGroups().all().get();
            System.out.println("listed");
            System.out.flush();
            long slowestMs = 0;
            long endMs = System.currentTimeMillis() + lastsMs;
            while (System.currentTimeMillis() < endMs) {
                long beganMs = System.currentTimeMillis();
                admin.listGroups().all().get();
                slowestMs = Math.max(slowestMs, System.currentTimeMillis() - beganMs);
                Thread.sleep(50);
            }
            System.out.println("slowest: " + slowestMs);
        }
    }
}
