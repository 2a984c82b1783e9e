package interop;

import com.alibaba.fastjson2.JSONObject;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Map;
import java.util.Set;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.impl.consumer.RebalanceImpl;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.common.protocol.heartbeat.MessageModel;

/**
 * What clients 4.9 call or do otherwise than clients 5.x, whose class has the same name. They have no POP, no timed
 * messages and no recall: a request that asks for one is a mistake of the test.
 */
final class Generation {
    private static final Set<String> NOT_HERE = Set.of(
            "client_rebalance",
            "pop_batch_size",
            "pop_invisible_ms",
            "pop_threshold_for_queue",
            "delay_sec",
            "delay_ms",
            "deliver_at_ms");

    private Generation() {}

    static Map<String, Agent.Operation> operations(Producers producers) {
        return Map.of();
    }

    /** A producer of {group}, not started: {compression, trace}. */
    static DefaultMQProducer producer(JSONObject request) {
        check(request);
        // How a producer compresses is decided by this property while it is made.
        String compression = request.getString("compression");
        if (compression != null) {
            System.setProperty(MixAll.MESSAGE_COMPRESS_TYPE, compression);
        }
        try {
            return new DefaultMQProducer(
                    request.getString("group"), Keys.hook(request), request.getBooleanValue("trace"), null);
        } finally {
            System.clearProperty(MixAll.MESSAGE_COMPRESS_TYPE);
        }
    }

    static String recallHandle(SendResult result) {
        return null;
    }

    static void setTime(Message message, JSONObject request) {
        check(request);
    }

    /** A push consumer of {group}, not started: {broadcast, trace}. */
    static DefaultMQPushConsumer pushConsumer(JSONObject request) {
        check(request);
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(
                request.getString("group"),
                Keys.hook(request),
                new AllocateMessageQueueAveragely(),
                request.getBooleanValue("trace"),
                null);
        if (request.getBooleanValue("broadcast")) {
            consumer.setMessageModel(MessageModel.BROADCASTING);
        }
        return consumer;
    }

    /** The queues that a consumer pulls from now. */
    static Collection<MessageQueue> queues(RebalanceImpl rebalance) {
        return new ArrayList<>(rebalance.getProcessQueueTable().keySet());
    }

    private static void check(JSONObject request) {
        for (String name : request.keySet()) {
            if (NOT_HERE.contains(name)) {
                throw new IllegalArgumentException("clients 4.9 have no " + name);
            }
        }
    }
}
