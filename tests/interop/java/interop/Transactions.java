package interop;

import com.alibaba.fastjson2.JSONArray;
import com.alibaba.fastjson2.JSONObject;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.impl.factory.MQClientInstance;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.client.producer.TransactionSendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/**
 * Producers of transactions by name. What a local transaction decides stands in its message: property "local" for the
 * time of sending, property "check" for every check (the last word of a list for those beyond it). Both are words
 * separated by commas: commit, rollback, unknown. A producer that is started with {@code is_undecided} answers unknown to
 * every check.
 */
final class Transactions {
    private static final int SEND_TIMEOUT_MS = 10_000;

    private final Map<String, TransactionMQProducer> producers = new HashMap<>();
    private final Map<String, Decider> deciders = new HashMap<>();

    /** Makes a producer that can be asked, and lets the brokers of a topic know it. */
    Object start(JSONObject request) throws Exception {
        MQClientInstance client = producer(request).getDefaultMQProducerImpl().getMqClientFactory();
        client.updateTopicRouteInfoFromNameServer(request.getString("topic"));
        client.sendHeartbeatToAllBrokerWithLock();
        return null;
    }

    /** Sends messages {@code start} to {@code start + count}; local and check are lists of words, taken in turn. */
    Object transact(JSONObject request) throws Exception {
        TransactionMQProducer producer = producer(request);
        JSONArray answers = new JSONArray();
        int start = request.getIntValue("start", 0);
        for (int index = start; index < start + request.getIntValue("count"); index++) {
            Message message = MessageJson.build(request, index);
            message.putUserProperty("local", word(request, "local", index));
            message.putUserProperty("check", word(request, "check", index));
            if (request.containsKey("immunity_s")) {
                message.putUserProperty("CHECK_IMMUNITY_TIME_IN_SECONDS", request.getString("immunity_s"));
            }
            TransactionSendResult result = producer.sendMessageInTransaction(message, null);
            JSONObject answer = new JSONObject();
            answer.put("status", result.getSendStatus().name());
            answer.put("message_id", result.getMsgId());
            answer.put("transaction_id", result.getTransactionId());
            answer.put("state", result.getLocalTransactionState().name());
            answer.put("queue_offset", result.getQueueOffset());
            answers.add(answer);
        }
        return answers;
    }

    /** How often each message was asked about here, by its index. */
    Object checks(JSONObject request) {
        return deciders.get(request.getString("name")).checks();
    }

    /** Has the producers of a parked message asked again; there is no mqadmin command for it. */
    Object resumeCheck(JSONObject request) throws Exception {
        DefaultMQAdminExt admin = new DefaultMQAdminExt(Keys.hook(request));
        admin.setNamesrvAddr(request.getString("namesrv"));
        admin.setInstanceName("resume-check");
        admin.start();
        try {
            return admin.resumeCheckHalfMessage(request.getString("topic"), request.getString("message_id"));
        } finally {
            admin.shutdown();
        }
    }

    Object stop(JSONObject request) {
        TransactionMQProducer producer = producers.remove(request.getString("name"));
        deciders.remove(request.getString("name"));
        if (producer != null) {
            producer.shutdown();
        }
        return null;
    }

    private static String word(JSONObject request, String name, int index) {
        JSONArray words = request.getJSONArray(name);
        return words.getString(index % words.size());
    }

    private TransactionMQProducer producer(JSONObject request) throws Exception {
        String name = request.getString("name");
        TransactionMQProducer producer = producers.get(name);
        if (producer == null) {
            Decider decider = new Decider(request.getBooleanValue("is_undecided"));
            producer = new TransactionMQProducer(request.getString("group"), Keys.hook(request));
            producer.setNamesrvAddr(request.getString("namesrv"));
            producer.setInstanceName(name);
            producer.setSendMsgTimeout(SEND_TIMEOUT_MS);
            producer.setTransactionListener(decider);
            producer.start();
            producers.put(name, producer);
            deciders.put(name, decider);
        }
        return producer;
    }

    private static final class Decider implements TransactionListener {
        private final Map<String, AtomicInteger> checks = new ConcurrentHashMap<>();
        private final boolean isUndecided;

        Decider(boolean isUndecided) {
            this.isUndecided = isUndecided;
        }

        @Override
        public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
            return state(message.getUserProperty("local"), 0);
        }

        @Override
        public LocalTransactionState checkLocalTransaction(MessageExt message) {
            if (!message.getTransactionId().equals(message.getProperty("UNIQ_KEY"))) {
                throw new IllegalStateException("transaction id " + message.getTransactionId());
            }
            int number = checks.computeIfAbsent(message.getUserProperty("index"), ignored -> new AtomicInteger())
                    .getAndIncrement();
            return isUndecided ? LocalTransactionState.UNKNOW : state(message.getUserProperty("check"), number);
        }

        JSONObject checks() {
            JSONObject counts = new JSONObject();
            checks.forEach((index, count) -> counts.put(index, count.get()));
            return counts;
        }

        private static LocalTransactionState state(String words, int number) {
            String[] each = words.split(",");
            switch (each[Math.min(number, each.length - 1)]) {
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
