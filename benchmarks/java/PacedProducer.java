import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.LockSupport;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;
import org.apache.rocketmq.remoting.protocol.SerializeType;

/**
 * The official benchmark's producer (org.apache.rocketmq.example.benchmark.Producer: synchronous sends of many threads
 * over one client, binary headers), at a rate that can be set while it runs.
 *
 * <p>Arguments: NAMESRV TOPIC THREADS BODY_BYTES RATE_FILE. The file holds messages a second: 0 rests, below 0 sends as
 * fast as answers come. It is read again every 100 ms. Every failed send prints a line that begins with "failed".
 */
public final class PacedProducer {
    /** Sends are due at fixed times from `startNanos` on; `next` is the number of the next one. */
    private record Schedule(long rate, long startNanos, AtomicLong next) {}

    private static volatile Schedule schedule = new Schedule(0, 0, new AtomicLong());

    private PacedProducer() {}

    public static void main(String[] arguments) throws Exception {
        System.setProperty(RemotingCommand.SERIALIZE_TYPE_PROPERTY, SerializeType.ROCKETMQ.name());
        String topic = arguments[1];
        byte[] body = "b".repeat(Integer.parseInt(arguments[3])).getBytes(StandardCharsets.UTF_8);
        Path rateFile = Path.of(arguments[4]);
        DefaultMQProducer producer = new DefaultMQProducer("benchmark_producer");
        producer.setNamesrvAddr(arguments[0]);
        producer.setCompressMsgBodyOverHowmuch(Integer.MAX_VALUE);
        producer.start();
        for (int number = 0; number < Integer.parseInt(arguments[2]); number++) {
            Thread thread = new Thread(() -> sendForever(producer, topic, body), "sender-" + number);
            thread.setDaemon(true);
            thread.start();
        }
        System.out.println("producer started");
        while (true) {
            long rate = Long.parseLong(Files.readString(rateFile).strip());
            if (rate != schedule.rate()) {
                schedule = new Schedule(rate, System.nanoTime(), new AtomicLong());
            }
            Thread.sleep(100);
        }
    }

    private static void sendForever(DefaultMQProducer producer, String topic, byte[] body) {
        while (true) {
            waitForTurn();
            try {
                producer.send(new Message(topic, body));
            } catch (Exception error) {
                System.out.println("failed " + error);
            }
        }
    }

    private static void waitForTurn() {
        while (true) {
            Schedule current = schedule;
            if (current.rate() < 0) {
                return;
            }
            if (current.rate() == 0) {
                LockSupport.parkNanos(10_000_000);
                continue;
            }
            long due = current.startNanos() + current.next().getAndIncrement() * 1_000_000_000L / current.rate();
            while (current == schedule) {
                long left = due - System.nanoTime();
                if (left <= 0) {
                    return;
                }
                LockSupport.parkNanos(Math.min(left, 100_000_000L));
            }
        }
    }
}
