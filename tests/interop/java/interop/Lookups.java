package interop;

import com.alibaba.fastjson2.JSONArray;
import com.alibaba.fastjson2.JSONObject;
import java.nio.charset.StandardCharsets;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Messages found by key and by unique id, and sends to one queue of one broker, whatever its permissions. */
final class Lookups {
    private Lookups() {}

    /** Messages of {topic} that have {key}, stored between {begin_ms} and {end_ms}, as the client gives them. */
    static Object byKey(JSONObject request) throws Exception {
        DefaultMQPullConsumer consumer = start(request);
        try {
            JSONArray messages = new JSONArray();
            for (MessageExt message : consumer.queryMessage(
                            request.getString("topic"),
                            request.getString("key"),
                            request.getIntValue("count_max", 32),
                            request.getLongValue("begin_ms"),
                            request.getLongValue("end_ms"))
                    .getMessageList()) {
                messages.add(MessageJson.of(message));
            }
            return messages;
        } finally {
            consumer.shutdown();
        }
    }

    /** The message of {topic} with the unique {id}. */
    static Object byUniqueId(JSONObject request) throws Exception {
        DefaultMQPullConsumer consumer = start(request);
        try {
            return MessageJson.of(consumer.getDefaultMQPullConsumerImpl()
                    .queryMessageByUniqKey(request.getString("topic"), request.getString("id")));
        } finally {
            consumer.shutdown();
        }
    }

    private static DefaultMQPullConsumer start(JSONObject request) throws Exception {
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer("interop-lookups", Keys.hook(request));
        consumer.setNamesrvAddr(request.getString("namesrv"));
        consumer.setInstanceName("lookups-" + System.nanoTime());
        consumer.start();
        return consumer;
    }

    /** Sends to {queue_id} of {topic} at {broker_name}, and tells the response code of the refusal, or SUCCESS, 0. */
    static Object sendTo(JSONObject request) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("interop-refused", Keys.hook(request));
        producer.setNamesrvAddr(request.getString("namesrv"));
        producer.setInstanceName("refused-" + System.nanoTime());
        producer.setRetryTimesWhenSendFailed(0);
        producer.start();
        try {
            String topic = request.getString("topic");
            MessageQueue queue =
                    new MessageQueue(topic, request.getString("broker_name"), request.getIntValue("queue_id"));
            producer.send(new Message(topic, "refused".getBytes(StandardCharsets.UTF_8)), queue);
            return 0;
        } catch (MQBrokerException refused) {
            return refused.getResponseCode();
        } catch (MQClientException refused) {
            if (refused.getCause() instanceof MQBrokerException) {
                return ((MQBrokerException) refused.getCause()).getResponseCode();
            }
            throw refused;
        } finally {
            producer.shutdown();
        }
    }
}
