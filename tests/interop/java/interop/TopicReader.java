package interop;

import com.alibaba.fastjson2.JSONArray;
import com.alibaba.fastjson2.JSONObject;
import java.util.ArrayList;
import java.util.List;
import java.util.TreeSet;
import java.util.function.Consumer;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.client.impl.factory.MQClientInstance;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Reads whole topics by explicit offsets, with the official pull client. */
final class TopicReader {
    private static final int PULL_COUNT_MAX = 32;
    private static final int UNANSWERED_MAX = 50;

    private TopicReader() {}

    /** Every message of {topic} from each queue's minimum to its maximum, in queue order; with {sql} those it means. */
    static Object read(JSONObject request) throws Exception {
        JSONArray messages = new JSONArray();
        each(request, message -> messages.add(MessageJson.of(message)));
        return messages;
    }

    /** The same for topics of any size: {journal} notes what is there. */
    static Object journal(JSONObject request) throws Exception {
        Journal journal = new Journal(request.getString("journal"));
        each(request, message -> journal.received(message, true));
        return null;
    }

    private static void each(JSONObject request, Consumer<MessageExt> visitor) throws Exception {
        DefaultMQPullConsumer consumer = start(request);
        try {
            MessageSelector selector = request.containsKey("sql")
                    ? MessageSelector.bySql(request.getString("sql"))
                    : MessageSelector.byTag("*");
            List<MessageQueue> queues = queues(consumer, request);
            // The client filters only at brokers whose version it knows, from their answer to a heartbeat.
            MQClientInstance client =
                    consumer.getDefaultMQPullConsumerImpl().getRebalanceImpl().getmQClientFactory();
            client.updateTopicRouteInfoFromNameServer(request.getString("topic"));
            client.sendHeartbeatToAllBrokerWithLock();
            for (MessageQueue queue : queues) {
                long end = consumer.maxOffset(queue);
                long next = consumer.minOffset(queue);
                int unanswered = 0;
                while (next < end) {
                    PullResult answer = consumer.pull(queue, selector, next, PULL_COUNT_MAX, 10_000);
                    if (answer.getPullStatus() == PullStatus.FOUND) {
                        unanswered = 0;
                        answer.getMsgFoundList().forEach(visitor);
                    } else if (++unanswered > UNANSWERED_MAX) {
                        throw new IllegalStateException(answer + " again and again at " + next + " of " + queue);
                    }
                    next = answer.getNextBeginOffset();
                }
            }
        } finally {
            consumer.shutdown();
        }
    }

    /** Per queue: minimum, maximum, earliest store time, and the offset found for {timestamp_ms} if that is given. */
    static Object offsets(JSONObject request) throws Exception {
        DefaultMQPullConsumer consumer = start(request);
        try {
            JSONArray offsets = new JSONArray();
            for (MessageQueue queue : queues(consumer, request)) {
                JSONObject json = new JSONObject();
                json.put("queue_id", queue.getQueueId());
                json.put("min_offset", consumer.minOffset(queue));
                json.put("max_offset", consumer.maxOffset(queue));
                json.put("earliest_ms", consumer.earliestMsgStoreTime(queue));
                if (request.containsKey("timestamp_ms")) {
                    json.put("found_offset", consumer.searchOffset(queue, request.getLongValue("timestamp_ms")));
                }
                offsets.add(json);
            }
            return offsets;
        } finally {
            consumer.shutdown();
        }
    }

    private static DefaultMQPullConsumer start(JSONObject request) throws Exception {
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer(request.getString("group"), Keys.hook(request));
        consumer.setNamesrvAddr(request.getString("namesrv"));
        consumer.setInstanceName("reader-" + System.nanoTime());
        consumer.start();
        return consumer;
    }

    private static List<MessageQueue> queues(DefaultMQPullConsumer consumer, JSONObject request) throws Exception {
        return new ArrayList<>(new TreeSet<>(consumer.fetchSubscribeMessageQueues(request.getString("topic"))));
    }
}
