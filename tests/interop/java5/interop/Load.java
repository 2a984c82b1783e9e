package interop;

import com.alibaba.fastjson2.JSONObject;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.client.producer.selector.SelectMessageQueueByHash;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** Producers that send by themselves, numbered messages at a rate, and note in a journal what became of each. */
final class Load {
    private static final int UNANSWERED_MAX = 256;
    private static final long STOP_TIMEOUT_S = 30;
    private static final long PAUSE_AFTER_FAILURE_MS = 100;

    private final Map<String, Sender> senders = new HashMap<>();

    /**
     * Starts one: {name, namesrv, group, topic, prefix, kind, rate, journal}, and what {@link MessageJson#build} reads.
     * rate is in requests a second; poll_namesrv_ms: how often routes are requested, if not by the default.
     *
     * <p>kind: sync; async; batch (of batch_size); ordered (sharding key: number modulo shards); delayed (level 1 and 2
     * in turn); timed (due after delays_ms, in turn); transaction (local and check are lists of words, taken in turn:
     * commit, rollback, unknown).
     */
    Object start(JSONObject request) throws Exception {
        Sender sender = new Sender(request);
        sender.thread.start();
        senders.put(request.getString("name"), sender);
        return null;
    }

    /** Has {name} send no more; how many messages it has begun to send. Its producer lives on, to be asked. */
    Object finish(JSONObject request) throws Exception {
        return senders.get(request.getString("name")).finish();
    }

    private static final class Sender {
        private final JSONObject request;
        private final Journal journal;
        private final DefaultMQProducer producer;
        private final Semaphore unanswered = new Semaphore(UNANSWERED_MAX);
        private final Thread thread = new Thread(this::run, "load");
        private volatile boolean finished;
        private int begun;

        Sender(JSONObject request) throws Exception {
            this.request = request;
            this.journal = new Journal(request.getString("journal"));
            String group = request.getString("group");
            if ("transaction".equals(request.getString("kind"))) {
                TransactionMQProducer asked = new TransactionMQProducer(group);
                asked.setTransactionListener(new Decider(request));
                producer = asked;
            } else {
                producer = new DefaultMQProducer(group);
            }
            producer.setNamesrvAddr(request.getString("namesrv"));
            producer.setInstanceName(request.getString("name"));
            producer.setHeartbeatBrokerInterval(request.getIntValue("heartbeat_ms"));
            producer.setPollNameServerInterval(
                    request.getIntValue("poll_namesrv_ms", producer.getPollNameServerInterval()));
            producer.start();
        }

        int finish() throws InterruptedException {
            finished = true;
            thread.join();
            unanswered.tryAcquire(UNANSWERED_MAX, STOP_TIMEOUT_S, TimeUnit.SECONDS);
            return begun;
        }

        private void run() {
            long intervalNs = (long) (1e9 / request.getDoubleValue("rate"));
            long next = System.nanoTime();
            while (!finished) {
                boolean answered = send();
                // What a failure or a pause has cost is not made up for.
                next = Math.max(next + intervalNs, System.nanoTime());
                sleep((next - System.nanoTime()) / 1_000_000 + (answered ? 0 : PAUSE_AFTER_FAILURE_MS));
            }
        }

        /** One request; false when it failed. */
        private boolean send() {
            long sentMs = System.currentTimeMillis();
            int first = begun;
            List<Message> messages = new ArrayList<>();
            int count = request.getIntValue("batch_size", 1);
            for (; begun < first + count; begun++) {
                messages.add(build(begun, sentMs));
            }
            String outcome;
            try {
                outcome = sendAll(first, sentMs, messages);
            } catch (Exception problem) {
                outcome = problem.toString();
            }
            if (outcome == null) {
                return true; // its callback knows
            }
            for (int number = first; number < first + count; number++) {
                journal.sent(number, sentMs, outcome, due(messages.get(number - first), sentMs));
            }
            return "SEND_OK".equals(outcome);
        }

        private String sendAll(int number, long sentMs, List<Message> messages) throws Exception {
            Message message = messages.get(0);
            switch (request.getString("kind")) {
                case "batch":
                    return producer.send(messages).getSendStatus().name();
                case "ordered":
                    String shard = Integer.toString(number % request.getIntValue("shards"));
                    return producer.send(message, new SelectMessageQueueByHash(), shard).getSendStatus().name();
                case "transaction":
                    return producer.sendMessageInTransaction(message, null).getSendStatus().name();
                case "async":
                    sendAsync(number, sentMs, message);
                    return null;
                default:
                    return producer.send(message).getSendStatus().name();
            }
        }

        private void sendAsync(int number, long sentMs, Message message) throws Exception {
            unanswered.acquire();
            try {
                producer.send(message, new SendCallback() {
                    @Override
                    public void onSuccess(SendResult result) {
                        end(result.getSendStatus().name());
                    }

                    @Override
                    public void onException(Throwable problem) {
                        end(problem.toString());
                    }

                    private void end(String outcome) {
                        journal.sent(number, sentMs, outcome, 0);
                        unanswered.release();
                    }
                });
            } catch (Exception problem) {
                unanswered.release();
                throw problem;
            }
        }

        private Message build(int number, long sentMs) {
            Message message = MessageJson.build(request, number);
            message.putUserProperty("weight", Integer.toString(number % 10));
            switch (request.getString("kind")) {
                case "delayed":
                    message.setDelayTimeLevel(1 + number % 2);
                    break;
                case "timed":
                    List<Long> delays = request.getList("delays_ms", Long.class);
                    message.setDeliverTimeMs(sentMs + delays.get(number % delays.size()));
                    break;
                default:
                    break;
            }
            return message;
        }

        private static long due(Message message, long sentMs) {
            switch (message.getDelayTimeLevel()) {
                case 1:
                    return sentMs + 1_000;
                case 2:
                    return sentMs + 5_000;
                default:
                    return message.getDeliverTimeMs();
            }
        }

        private static void sleep(long ms) {
            try {
                Thread.sleep(Math.max(0, ms));
            } catch (InterruptedException ended) {
                throw new IllegalStateException(ended);
            }
        }
    }

    /** Decides as the lists of words say, by a message's number. */
    private static final class Decider implements TransactionListener {
        private final JSONObject request;

        Decider(JSONObject request) {
            this.request = request;
        }

        @Override
        public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
            return state("local", message);
        }

        @Override
        public LocalTransactionState checkLocalTransaction(MessageExt message) {
            return state("check", message);
        }

        private LocalTransactionState state(String name, Message message) {
            List<String> words = request.getList(name, String.class);
            switch (words.get(Integer.parseInt(message.getUserProperty("index")) % words.size())) {
                case "commit":
                    return LocalTransactionState.COMMIT_MESSAGE;
                case "rollback":
                    return LocalTransactionState.ROLLBACK_MESSAGE;
                default:
                    return LocalTransactionState.UNKNOW;
            }
        }
    }
}
