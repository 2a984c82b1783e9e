package interop;

import com.alibaba.fastjson2.JSONObject;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Map;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.impl.consumer.RebalanceImpl;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.compression.CompressionType;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.protocol.heartbeat.MessageModel;

/** What clients 5.x have, and what they call or do otherwise than clients 4.9, whose class has the same name. */
final class Generation {
    private Generation() {}

    /** Operations that clients 4.9 have not. */
    static Map<String, Agent.Operation> operations(Producers producers) {
        Pops pops = new Pops(producers);
        Load load = new Load();
        return Map.of(
                "recall", request -> recall(producers.producer(request), request),
                "start_load", load::start,
                "finish_load", load::finish,
                "pop", pops::pop,
                "ack", pops::ack,
                "batch_ack", pops::batchAck,
                "change_invisible", pops::changeInvisible,
                "read_receipt", pops::readReceipt);
    }

    /** A producer of {group}, not started: {compression, trace}. */
    static DefaultMQProducer producer(JSONObject request) {
        DefaultMQProducer producer = new DefaultMQProducer(request.getString("group"), Keys.hook(request));
        if (request.containsKey("compression")) {
            producer.setCompressType(CompressionType.valueOf(request.getString("compression")));
        }
        if (request.getBooleanValue("trace")) {
            producer.setEnableTrace(true);
        }
        return producer;
    }

    /** Takes a timed message back by its handle; the answer is its unique id. */
    private static String recall(DefaultMQProducer producer, JSONObject request) throws Exception {
        return producer.recallMessage(request.getString("topic"), request.getString("handle"));
    }

    /** With what a timed message may be taken back; null for others. */
    static String recallHandle(SendResult result) {
        return result.getRecallHandle();
    }

    /** {delay_sec, delay_ms, deliver_at_ms}. */
    static void setTime(Message message, JSONObject request) {
        if (request.containsKey("delay_sec")) {
            message.setDelayTimeSec(request.getLongValue("delay_sec"));
        }
        if (request.containsKey("delay_ms")) {
            message.setDelayTimeMs(request.getLongValue("delay_ms"));
        }
        if (request.containsKey("deliver_at_ms")) {
            message.setDeliverTimeMs(request.getLongValue("deliver_at_ms"));
        }
    }

    /**
     * A push consumer of {group}, not started: {broadcast, trace}; for POP {client_rebalance, pop_batch_size,
     * pop_invisible_ms, pop_threshold_for_queue}.
     */
    static DefaultMQPushConsumer pushConsumer(JSONObject request) {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(request.getString("group"), Keys.hook(request));
        if (request.getBooleanValue("broadcast")) {
            consumer.setMessageModel(MessageModel.BROADCASTING);
        }
        if (request.getBooleanValue("trace")) {
            consumer.setEnableTrace(true);
        }
        consumer.setClientRebalance(request.getBooleanValue("client_rebalance", true));
        consumer.setPopBatchNums(request.getIntValue("pop_batch_size", consumer.getPopBatchNums()));
        consumer.setPopInvisibleTime(request.getLongValue("pop_invisible_ms", consumer.getPopInvisibleTime()));
        consumer.setPopThresholdForQueue(
                request.getIntValue("pop_threshold_for_queue", consumer.getPopThresholdForQueue()));
        return consumer;
    }

    /** The queues that a consumer pulls or pops from now. */
    static Collection<MessageQueue> queues(RebalanceImpl rebalance) {
        Collection<MessageQueue> queues = new ArrayList<>(rebalance.getProcessQueueTable().keySet());
        queues.addAll(rebalance.getPopProcessQueueTable().keySet());
        return queues;
    }
}
