import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.function.BooleanSupplier;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientConfigurationBuilder;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.StaticSessionCredentialsProvider;
import org.apache.rocketmq.client.apis.consumer.ConsumeResult;
import org.apache.rocketmq.client.apis.consumer.FilterExpression;
import org.apache.rocketmq.client.apis.consumer.MessageListener;
import org.apache.rocketmq.client.apis.consumer.PushConsumer;
import org.apache.rocketmq.client.apis.consumer.SimpleConsumer;
import org.apache.rocketmq.client.apis.message.Message;
import org.apache.rocketmq.client.apis.message.MessageBuilder;
import org.apache.rocketmq.client.apis.message.MessageView;
import org.apache.rocketmq.client.apis.producer.Producer;
import org.apache.rocketmq.client.apis.producer.ProducerBuilder;
import org.apache.rocketmq.client.apis.producer.SendReceipt;
import org.apache.rocketmq.client.apis.producer.Transaction;
import org.apache.rocketmq.client.apis.producer.TransactionResolution;

/**
 * Drives RocketMQ's official Java client for gRPC through one scenario: GrpcClients HOST:PORT PREFIX SCENARIO COUNT
 * tls|plain.
 *
 * <p>Topics are PREFIX with the type of their messages behind it, the group is PREFIX-SCENARIO. Prints "OK" when all
 * messages came as they must, else "FAIL" and why, with exit status 1. Clients sign with the keys of the
 * environment: INTEROP_ACCESS_KEY and INTEROP_SECRET_KEY. It knows nothing of Thermocline.
 */
public final class GrpcClients {
    private static final long TIMEOUT_MS = 60_000;
    private static final ClientServiceProvider PROVIDER = ClientServiceProvider.loadService();

    private final ClientConfiguration configuration;
    private final String prefix;
    private final String group;
    private final int count;

    private GrpcClients(String endpoint, String prefix, String scenario, int count, boolean isTls) {
        ClientConfigurationBuilder builder = ClientConfiguration.newBuilder().setEndpoints(endpoint).enableSsl(isTls);
        String accessKey = System.getenv("INTEROP_ACCESS_KEY");
        if (accessKey != null) {
            String secretKey = System.getenv("INTEROP_SECRET_KEY");
            builder.setCredentialProvider(new StaticSessionCredentialsProvider(accessKey, secretKey));
        }
        this.configuration = builder.build();
        this.prefix = prefix;
        this.group = prefix + "-" + scenario;
        this.count = count;
    }

    public static void main(String[] arguments) {
        try {
            boolean isTls = arguments[4].equals("tls");
            new GrpcClients(arguments[0], arguments[1], arguments[2], Integer.parseInt(arguments[3]), isTls)
                .run(arguments[2]);
            System.out.println("OK");
            Runtime.getRuntime().halt(0);
        } catch (Throwable failure) {
            System.out.println("FAIL " + failure);
            failure.printStackTrace();
            Runtime.getRuntime().halt(1);
        }
    }

    private void run(String scenario) throws Exception {
        switch (scenario) {
            case "simple": simple(); break;
            case "push": push(); break;
            case "fifo": fifo(); break;
            case "delay": delay(); break;
            case "transaction": transaction(); break;
            case "check": check(); break;
            case "retry": retry(); break;
            case "load": load(); break;
            default: throw new IllegalArgumentException(scenario);
        }
    }

    private void simple() throws Exception {
        String topic = prefix + "NORMAL";
        Set<String> sent = new java.util.HashSet<>();
        try (Producer producer = producer(topic).build()) {
            for (int i = 0; i < count; i++) {
                Message message = message(topic, "body-" + i).setTag("tag").setKeys("key-" + i, "ключ")
                    .addProperty("имя", "значение").build();
                sent.add(producer.send(message).getMessageId().toString());
            }
            SendReceipt asynchronous = producer.sendAsync(message(topic, "async").setTag("tag").build()).get();
            sent.add(asynchronous.getMessageId().toString());
        }
        SimpleConsumer consumer = PROVIDER.newSimpleConsumerBuilder().setClientConfiguration(configuration)
            .setConsumerGroup(group).setAwaitDuration(Duration.ofSeconds(5))
            .setSubscriptionExpressions(Collections.singletonMap(topic, new FilterExpression("tag"))).build();
        Set<String> received = new java.util.HashSet<>();
        long deadline = System.currentTimeMillis() + TIMEOUT_MS;
        while (received.size() < sent.size()) {
            verify(System.currentTimeMillis() < deadline, received.size() + " of " + sent.size());
            for (MessageView view : consumer.receive(16, Duration.ofSeconds(30))) {
                verify(received.add(view.getMessageId().toString()), "twice: " + view);
                if (!body(view).equals("async")) {
                    verify("значение".equals(view.getProperties().get("имя")), "properties of " + view);
                    verify(view.getKeys().contains("ключ"), "keys of " + view);
                }
                if (received.size() == 1) {
                    consumer.changeInvisibleDuration(view, Duration.ofSeconds(60));
                }
                consumer.ack(view);
            }
        }
        verify(received.equals(sent), "ids differ");
        consumer.close();
    }

    private void push() throws Exception {
        String topic = prefix + "NORMAL";
        ConcurrentLinkedQueue<String> bodies = new ConcurrentLinkedQueue<>();
        try (PushConsumer consumer = pushConsumer(topic, view -> {
            bodies.add(body(view));
            return ConsumeResult.SUCCESS;
        }); Producer producer = producer(topic).build()) {
            for (int i = 0; i < count; i++) {
                producer.send(message(topic, "push-" + i).build());
            }
            await(() -> bodies.stream().filter(each -> each.startsWith("push-")).count() >= count, "pushed");
            verify(bodies.stream().distinct().count() == bodies.size(), "a message came twice: " + bodies);
        }
    }

    private void retry() throws Exception {
        String topic = prefix + "NORMAL";
        ConcurrentLinkedQueue<Integer> attempts = new ConcurrentLinkedQueue<>();
        try (PushConsumer consumer = pushConsumer(topic, view -> {
            if (!body(view).equals("retry")) {
                return ConsumeResult.SUCCESS;
            }
            attempts.add(view.getDeliveryAttempt());
            return view.getDeliveryAttempt() < 3 ? ConsumeResult.FAILURE : ConsumeResult.SUCCESS;
        }); Producer producer = producer(topic).build()) {
            producer.send(message(topic, "retry").build());
            await(() -> attempts.size() >= 3, "three attempts");
            verify(new ArrayList<>(attempts).equals(java.util.Arrays.asList(1, 2, 3)), "attempts " + attempts);
        }
    }

    private void fifo() throws Exception {
        String topic = prefix + "FIFO";
        Map<String, List<Integer>> byGroup = new ConcurrentHashMap<>();
        try (Producer producer = producer(topic).build()) {
            for (int i = 0; i < count; i++) {
                for (String name : new String[] {"a", "b", "c"}) {
                    producer.send(message(topic, name + "-" + i).setMessageGroup(name).build());
                }
            }
        }
        Map<String, AtomicBoolean> failed = new HashMap<>();
        try (PushConsumer consumer = pushConsumer(topic, view -> {
            String name = view.getMessageGroup().get();
            int number = Integer.parseInt(body(view).substring(2));
            synchronized (failed) {
                if (number == 2 && failed.computeIfAbsent(name, each -> new AtomicBoolean()).compareAndSet(false, true)) {
                    return ConsumeResult.FAILURE; // it comes again before what is behind it
                }
            }
            byGroup.computeIfAbsent(name, each -> Collections.synchronizedList(new ArrayList<>())).add(number);
            return ConsumeResult.SUCCESS;
        })) {
            await(() -> byGroup.values().stream().mapToInt(List::size).sum() >= 3 * count, "ordered messages");
        }
        for (List<Integer> numbers : byGroup.values()) {
            for (int i = 0; i < count; i++) {
                verify(numbers.get(i) == i, "out of order: " + byGroup);
            }
        }
    }

    private void delay() throws Exception {
        String topic = prefix + "DELAY";
        ConcurrentLinkedQueue<Long> times = new ConcurrentLinkedQueue<>();
        try (PushConsumer consumer = pushConsumer(topic, view -> {
            times.add(System.currentTimeMillis());
            return ConsumeResult.SUCCESS;
        }); Producer producer = producer(topic).build()) {
            long due = System.currentTimeMillis() + 3_000;
            SendReceipt receipt = producer.send(message(topic, "later").setDeliveryTimestamp(due).build());
            verify(receipt.getRecallHandle() != null && !receipt.getRecallHandle().isEmpty(), "no recall handle");
            await(() -> !times.isEmpty(), "the delayed message");
            verify(times.peek() >= due, "early by " + (due - times.peek()) + " ms");
        }
    }

    private void transaction() throws Exception {
        String topic = prefix + "TRANSACTION";
        ConcurrentLinkedQueue<String> bodies = new ConcurrentLinkedQueue<>();
        try (PushConsumer consumer = pushConsumer(topic, view -> {
            bodies.add(body(view));
            return ConsumeResult.SUCCESS;
        }); Producer producer = producer(topic).setTransactionChecker(view -> TransactionResolution.UNKNOWN).build()) {
            for (int i = 0; i < count; i++) {
                Transaction transaction = producer.beginTransaction();
                producer.send(message(topic, "tx-" + i).build(), transaction);
                if (i % 2 == 0) {
                    transaction.commit();
                } else {
                    transaction.rollback();
                }
            }
            await(() -> bodies.stream().filter(each -> each.startsWith("tx-")).count() >= (count + 1) / 2, "committed");
            for (String each : bodies) {
                verify(!each.startsWith("tx-") || Integer.parseInt(each.substring(3)) % 2 == 0, "rolled back: " + each);
            }
        }
    }

    private void check() throws Exception {
        String topic = prefix + "TRANSACTION";
        ConcurrentLinkedQueue<String> bodies = new ConcurrentLinkedQueue<>();
        ConcurrentLinkedQueue<String> checked = new ConcurrentLinkedQueue<>();
        try (PushConsumer consumer = pushConsumer(topic, view -> {
            bodies.add(body(view));
            return ConsumeResult.SUCCESS;
        }); Producer producer = producer(topic).setTransactionChecker(view -> {
            checked.add(body(view));
            return body(view).equals("commit") ? TransactionResolution.COMMIT : TransactionResolution.ROLLBACK;
        }).build()) {
            for (String body : new String[] {"commit", "rollback"}) {
                producer.send(message(topic, body).build(), producer.beginTransaction());
            }
            await(() -> checked.contains("commit") && checked.contains("rollback"), "both are checked");
            await(() -> bodies.contains("commit"), "the checked commit");
            verify(!bodies.contains("rollback"), "rolled back and delivered");
        }
    }

    /**
     * Sends a message every COUNT milliseconds and consumes all that is in the topic, until its input ends; a line of
     * input ends the sending. Prints "ready", "sent MILLISECONDS BODY" when a message is acknowledged, "got MILLISECONDS
     * BODY" when one is received, and "stopped" behind the last that it sent.
     */
    private void load() throws Exception {
        String topic = prefix + "NORMAL";
        AtomicBoolean isStopped = new AtomicBoolean();
        try (PushConsumer consumer = pushConsumer(topic, group + "-java", view -> {
            note("got", body(view));
            return ConsumeResult.SUCCESS;
        }); Producer producer = producer(topic).build()) {
            note("ready", "");
            Thread sending = new Thread(() -> {
                for (int number = 0; !isStopped.get(); number++) {
                    String body = "java-" + number;
                    try {
                        producer.send(message(topic, body).build());
                        note("sent", body);
                    } catch (Exception notAcknowledged) {
                        System.err.println(notAcknowledged); // the message may be there or not
                    }
                    sleep(count);
                }
                note("stopped", "");
            });
            sending.start();
            while (System.in.read() != -1) {
                isStopped.set(true);
            }
            isStopped.set(true);
            sending.join();
        }
    }

    private static synchronized void note(String what, String body) {
        System.out.println(what + " " + System.currentTimeMillis() + " " + body);
    }

    private static void sleep(long milliseconds) {
        try {
            Thread.sleep(milliseconds);
        } catch (InterruptedException interrupted) {
            Thread.currentThread().interrupt();
        }
    }

    private ProducerBuilder producer(String topic) {
        return PROVIDER.newProducerBuilder().setClientConfiguration(configuration).setTopics(topic);
    }

    private PushConsumer pushConsumer(String topic, MessageListener listener) throws Exception {
        return pushConsumer(topic, group, listener);
    }

    private PushConsumer pushConsumer(String topic, String group, MessageListener listener) throws Exception {
        return PROVIDER.newPushConsumerBuilder().setClientConfiguration(configuration).setConsumerGroup(group)
            .setSubscriptionExpressions(Collections.singletonMap(topic, FilterExpression.SUB_ALL))
            .setMessageListener(listener).build();
    }

    private static MessageBuilder message(String topic, String body) {
        return PROVIDER.newMessageBuilder().setTopic(topic).setBody(body.getBytes(StandardCharsets.UTF_8));
    }

    private static String body(MessageView view) {
        return StandardCharsets.UTF_8.decode(view.getBody()).toString();
    }

    private static void await(BooleanSupplier condition, String what) throws InterruptedException {
        long deadline = System.currentTimeMillis() + TIMEOUT_MS;
        while (!condition.getAsBoolean()) {
            verify(System.currentTimeMillis() < deadline, "not in time: " + what);
            Thread.sleep(20);
        }
    }

    private static void verify(boolean holds, String what) {
        if (!holds) {
            throw new AssertionError(what);
        }
    }
}
