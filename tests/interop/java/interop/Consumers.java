package interop;

import com.alibaba.fastjson2.JSONArray;
import com.alibaba.fastjson2.JSONObject;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Running consumers by name, each with the messages it has received and not yet handed over. */
final class Consumers {
    /** How soon a consumer learns of a topic made after its start, its retry topic for one. */
    private static final int POLL_NAMESRV_INTERVAL_MS = 2_000;

    /** The delay level of messages that come again: one second. */
    private static final int RETRY_DELAY_LEVEL = 1;

    /** How long a consumer that stops waits for messages in work, so that it tells its group what it has received. */
    private static final long LAST_WORK_MS = 10_000;

    private abstract static class Running {
        private final List<JSONObject> inbox = new ArrayList<>();

        /** Messages that are refused the first time they come. */
        int refuseFirst;

        /** How long the listener works on a message before it says anything. */
        long holdMs;
        /** Whether every message is refused, as often as it comes; it is kept all the same. */
        boolean refuseAll;

        /** Where receptions are noted, for messages that no test takes; null when tests take them. */
        Journal journal;

        /** With a journal: each message whose number this divides is refused the first time; 0 refuses none. */
        int refuseEvery;

        abstract Collection<MessageQueue> assigned() throws Exception;

        /** Looks for the queues that are its own now, as when a broker says that its group has changed. */
        void rebalance() {}

        abstract void stop() throws Exception;

        /** Works on the messages for as long as the test asked, then keeps them; false when they shall come again. */
        boolean accept(List<MessageExt> messages) {
            if (holdMs > 0) {
                try {
                    Thread.sleep(holdMs);
                } catch (InterruptedException ended) {
                    return false;
                }
            }
            return journal == null ? keep(messages) : note(messages);
        }

        private boolean note(List<MessageExt> messages) {
            boolean refused = refuseEvery > 0
                    && messages.stream().anyMatch(message -> message.getReconsumeTimes() == 0
                            && Integer.parseInt(message.getUserProperty("index")) % refuseEvery == 0);
            messages.forEach(message -> journal.received(message, !refused));
            return !refused;
        }

        private synchronized boolean keep(List<MessageExt> messages) {
            boolean refused = false;
            for (MessageExt message : messages) {
                if (message.getReconsumeTimes() == 0 && refuseFirst > 0) {
                    refuseFirst--;
                    refused = true;
                }
            }
            if (refused) {
                return false;
            }
            messages.forEach(message -> inbox.add(MessageJson.of(message)));
            notifyAll();
            return !refuseAll;
        }

        synchronized JSONArray take(int countMin, long timeoutMs) throws InterruptedException {
            long deadline = System.nanoTime() + timeoutMs * 1_000_000;
            while (inbox.size() < countMin) {
                long leftMs = (deadline - System.nanoTime()) / 1_000_000;
                if (leftMs <= 0) {
                    break;
                }
                wait(leftMs);
            }
            JSONArray taken = new JSONArray();
            taken.addAll(inbox);
            inbox.clear();
            return taken;
        }
    }

    private final Map<String, Running> running = new HashMap<>();

    /**
     * Starts a push consumer: {name, namesrv, group, topics: {topic: tags or {sql: expression}}, orderly, broadcast, from,
     * timestamp, refuse_first, refuse_all, max_reconsume_times, trace, pull_batch_size, pull_threshold_for_queue,
     * pull_interval_ms, threads, hold_ms, retry_delay_level}; for POP also what {@link Generation} reads. With {journal}
     * receptions are noted there, and no message waits to be taken: {journal, refuse_every, heartbeat_ms}.
     */
    Object startPush(JSONObject request) throws Exception {
        DefaultMQPushConsumer consumer = push(request);
        consumer.setPullBatchSize(request.getIntValue("pull_batch_size", consumer.getPullBatchSize()));
        consumer.setPullThresholdForQueue(
                request.getIntValue("pull_threshold_for_queue", consumer.getPullThresholdForQueue()));
        consumer.setPullInterval(request.getLongValue("pull_interval_ms", consumer.getPullInterval()));
        if (request.containsKey("threads")) {
            consumer.setConsumeThreadMin(request.getIntValue("threads"));
            consumer.setConsumeThreadMax(request.getIntValue("threads"));
        }
        for (Map.Entry<String, Object> topic : request.getJSONObject("topics").entrySet()) {
            if (topic.getValue() instanceof JSONObject) {
                String expression = ((JSONObject) topic.getValue()).getString("sql");
                consumer.subscribe(topic.getKey(), MessageSelector.bySql(expression));
            } else {
                consumer.subscribe(topic.getKey(), topic.getValue().toString());
            }
        }
        int retryDelayLevel = request.getIntValue("retry_delay_level", RETRY_DELAY_LEVEL);
        Running handle = new Running() {
            @Override
            Collection<MessageQueue> assigned() {
                return Generation.queues(consumer.getDefaultMQPushConsumerImpl().getRebalanceImpl());
            }

            @Override
            void rebalance() {
                consumer.getDefaultMQPushConsumerImpl().getmQClientFactory().rebalanceImmediately();
            }

            @Override
            void stop() {
                consumer.shutdown();
            }
        };
        handle.refuseFirst = request.getIntValue("refuse_first", 0);
        handle.holdMs = request.getLongValue("hold_ms", 0);
        consumer.setAwaitTerminationMillisWhenShutdown(handle.holdMs > 0 ? 0 : LAST_WORK_MS);
        handle.refuseAll = request.getBooleanValue("refuse_all");
        if (request.containsKey("journal")) {
            handle.journal = new Journal(request.getString("journal"));
            handle.refuseEvery = request.getIntValue("refuse_every", 0);
        }
        if (request.getBooleanValue("orderly")) {
            consumer.registerMessageListener((MessageListenerOrderly) (messages, context) ->
                    handle.accept(messages)
                            ? ConsumeOrderlyStatus.SUCCESS
                            : ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT);
        } else {
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                context.setDelayLevelWhenNextConsume(retryDelayLevel);
                return handle.accept(messages)
                        ? ConsumeConcurrentlyStatus.CONSUME_SUCCESS
                        : ConsumeConcurrentlyStatus.RECONSUME_LATER;
            });
        }
        consumer.start();
        running.put(request.getString("name"), handle);
        return null;
    }

    /** Starts a push consumer that answers each request with "reply to BODY": {name, namesrv, group, topics}. */
    Object startReplier(JSONObject request) throws Exception {
        DefaultMQPushConsumer consumer = push(request);
        DefaultMQProducer replier = new DefaultMQProducer(request.getString("group") + "-replier", Keys.hook(request));
        replier.setNamesrvAddr(request.getString("namesrv"));
        replier.setInstanceName(request.getString("name") + "-replier");
        replier.start();
        for (Map.Entry<String, Object> topic : request.getJSONObject("topics").entrySet()) {
            consumer.subscribe(topic.getKey(), topic.getValue().toString());
        }
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                try {
                    String body = "reply to " + new String(message.getBody(), StandardCharsets.UTF_8);
                    replier.send(MessageUtil.createReplyMessage(message, body.getBytes(StandardCharsets.UTF_8)));
                } catch (Exception problem) {
                    problem.printStackTrace();
                    return ConsumeConcurrentlyStatus.RECONSUME_LATER;
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        running.put(request.getString("name"), new Running() {
            @Override
            Collection<MessageQueue> assigned() {
                return Generation.queues(consumer.getDefaultMQPushConsumerImpl().getRebalanceImpl());
            }

            @Override
            void stop() {
                consumer.shutdown();
                replier.shutdown();
            }
        });
        return null;
    }

    private static DefaultMQPushConsumer push(JSONObject request) {
        DefaultMQPushConsumer consumer = Generation.pushConsumer(request);
        consumer.setNamesrvAddr(request.getString("namesrv"));
        consumer.setInstanceName(request.getString("name"));
        consumer.setConsumeFromWhere(from(request));
        if (request.containsKey("timestamp")) {
            consumer.setConsumeTimestamp(request.getString("timestamp"));
        }
        consumer.setMaxReconsumeTimes(request.getIntValue("max_reconsume_times", consumer.getMaxReconsumeTimes()));
        consumer.setPersistConsumerOffsetInterval(500);
        consumer.setHeartbeatBrokerInterval(
                request.getIntValue("heartbeat_ms", consumer.getHeartbeatBrokerInterval()));
        consumer.setPollNameServerInterval(POLL_NAMESRV_INTERVAL_MS);
        return consumer;
    }

    /**
     * Starts a lite pull consumer and a thread that polls it: {name, namesrv, group, topic, expression or sql, mode}.
     *
     * <p>Mode "assign" takes all queues itself.
     */
    Object startLitePull(JSONObject request) throws Exception {
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer(request.getString("group"), Keys.hook(request));
        consumer.setNamesrvAddr(request.getString("namesrv"));
        consumer.setInstanceName(request.getString("name"));
        consumer.setConsumeFromWhere(from(request));
        consumer.setAutoCommitIntervalMillis(1_000);
        boolean assign = "assign".equals(request.getString("mode"));
        if (request.containsKey("sql")) {
            consumer.subscribe(request.getString("topic"), MessageSelector.bySql(request.getString("sql")));
        } else if (!assign) {
            consumer.subscribe(request.getString("topic"), request.getString("expression"));
        }
        consumer.start();
        if (assign) {
            // No seek here: this client's seek interrupts pulls of other queues, and one that was interrupted
            // on its first pull after its own seek goes on at the offset from before that seek.
            consumer.assign(consumer.fetchMessageQueues(request.getString("topic")));
        }
        LitePull handle = new LitePull(consumer);
        handle.start();
        running.put(request.getString("name"), handle);
        return null;
    }

    private static final class LitePull extends Running {
        private final DefaultLitePullConsumer consumer;
        private final Thread poller = new Thread(this::poll, "lite-pull-poller");
        private volatile boolean stopping;

        LitePull(DefaultLitePullConsumer consumer) {
            this.consumer = consumer;
        }

        void start() {
            poller.start();
        }

        private void poll() {
            while (!stopping) {
                List<MessageExt> messages = consumer.poll(200);
                if (!messages.isEmpty()) {
                    accept(messages);
                }
            }
        }

        @Override
        Collection<MessageQueue> assigned() throws Exception {
            return consumer.assignment();
        }

        @Override
        void stop() throws InterruptedException {
            stopping = true;
            poller.join();
            consumer.shutdown();
        }
    }

    /** Hands over what {name} has received, once it is at least {count} messages or {timeout_ms} have passed. */
    Object received(JSONObject request) throws Exception {
        return find(request).take(request.getIntValue("count"), request.getLongValue("timeout_ms"));
    }

    /** The queues that {name} works on now, as [broker name, topic, queue id]. */
    Object assigned(JSONObject request) throws Exception {
        JSONArray queues = new JSONArray();
        for (MessageQueue queue : new ArrayList<>(find(request).assigned())) {
            queues.add(JSONArray.of(queue.getBrokerName(), queue.getTopic(), queue.getQueueId()));
        }
        return queues;
    }

    /** Has {name} look for its queues now, rather than when the client next does so by itself. */
    Object rebalance(JSONObject request) {
        find(request).rebalance();
        return null;
    }

    /** Stops {name} and returns the received messages that no request has returned yet. */
    Object stop(JSONObject request) throws Exception {
        Running consumer = running.remove(request.getString("name"));
        if (consumer == null) {
            return new JSONArray();
        }
        consumer.stop();
        return consumer.take(0, 0);
    }

    private Running find(JSONObject request) {
        Running consumer = running.get(request.getString("name"));
        if (consumer == null) {
            throw new IllegalArgumentException("no consumer called " + request.getString("name"));
        }
        return consumer;
    }

    private static ConsumeFromWhere from(JSONObject request) {
        String from = request.getString("from");
        if ("last".equals(from)) {
            return ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET;
        }
        return "timestamp".equals(from)
                ? ConsumeFromWhere.CONSUME_FROM_TIMESTAMP
                : ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET;
    }
}
