package interop;

import com.alibaba.fastjson2.JSONArray;
import com.alibaba.fastjson2.JSONObject;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;

/** Producers by name: made at the first send, kept until they are stopped. */
final class Producers {
    private static final int SEND_TIMEOUT_MS = 10_000;

    /** What fails is avoided, and nothing else: by default a client avoids what answers slowly on a busy machine. */
    private static final long[] LATENCIES_MS = {0, 10_000};

    private static final long[] AVOIDED_FOR_MS = {0, 600_000};

    private final Map<String, DefaultMQProducer> producers = new HashMap<>();

    private int retirements;

    /**
     * Sends messages {@code start} to {@code start + count} and returns one answer a message, in order.
     *
     * <p>kind: sync, async, oneway (answers are null), batch (of batch_size), ordered (queue chosen by index modulo
     * shards). queue_id, when given, names the queue.
     */
    Object produce(JSONObject request) throws Exception {
        DefaultMQProducer producer = producer(request);
        int start = request.getIntValue("start", 0);
        int count = request.getIntValue("count");
        switch (request.getString("kind")) {
            case "sync":
                return each(request, start, count, message -> answer(producer.send(message, SEND_TIMEOUT_MS)));
            case "oneway":
                return each(request, start, count, message -> {
                    producer.sendOneway(message);
                    return null;
                });
            case "ordered":
                return each(request, start, count, message -> answer(producer.send(
                        message,
                        (queues, ignored, shard) -> queues.get((Integer) shard % queues.size()),
                        Integer.parseInt(message.getUserProperty("index")) % request.getIntValue("shards"),
                        SEND_TIMEOUT_MS)));
            case "batch":
                return batches(producer, request, start, count);
            case "async":
                return async(producer, request, start, count);
            default:
                throw new IllegalArgumentException("kind " + request.getString("kind"));
        }
    }

    /** Asks with message {@code start} to {@code start + count} and returns the bodies of the replies, as text. */
    Object request(JSONObject request) throws Exception {
        DefaultMQProducer producer = producer(request);
        int start = request.getIntValue("start", 0);
        return each(request, start, request.getIntValue("count"), message -> {
            Message reply = producer.request(message, request.getLongValue("timeout_ms", SEND_TIMEOUT_MS));
            return new String(reply.getBody(), StandardCharsets.UTF_8);
        });
    }

    Object stop(JSONObject request) {
        DefaultMQProducer producer = producers.remove(request.getString("name"));
        if (producer != null) {
            producer.shutdown();
        }
        return null;
    }

    /** Stops those of one NameServer: they would query its port for ever, even when another process uses it. */
    Object stopAll(JSONObject request) {
        String namesrv = request.getString("namesrv");
        producers.values().removeIf(producer -> {
            boolean isOfIt = namesrv.equals(producer.getNamesrvAddr());
            if (isOfIt) {
                producer.shutdown();
            }
            return isOfIt;
        });
        return null;
    }

    Object names(JSONObject request) {
        return new JSONArray(producers.keySet());
    }

    /** Stops all but those to keep, and waits for none: a client takes up to three seconds to end. */
    Object retire(JSONObject request) {
        Set<String> leaving = new HashSet<>(producers.keySet());
        leaving.removeAll(request.getList("keep", String.class));
        List<DefaultMQProducer> retired = new ArrayList<>();
        leaving.forEach(name -> retired.add(producers.remove(name)));
        if (!retired.isEmpty()) {
            retirements++;
            Thread stopping = new Thread(() -> retired.forEach(DefaultMQProducer::shutdown), "retirement");
            stopping.setDaemon(true);
            stopping.start();
        }
        return null;
    }

    private interface Send {
        Object send(Message message) throws Exception;
    }

    private static JSONArray each(JSONObject request, int start, int count, Send send) throws Exception {
        JSONArray answers = new JSONArray(count);
        for (int index = start; index < start + count; index++) {
            answers.add(send.send(MessageJson.build(request, index)));
        }
        return answers;
    }

    private static JSONArray batches(DefaultMQProducer producer, JSONObject request, int start, int count)
            throws Exception {
        JSONArray answers = new JSONArray();
        List<Message> batch = new ArrayList<>();
        for (int index = start; index < start + count; index++) {
            batch.add(MessageJson.build(request, index));
            if (batch.size() == request.getIntValue("batch_size") || index == start + count - 1) {
                answers.add(answer(producer.send(batch, SEND_TIMEOUT_MS)));
                batch.clear();
            }
        }
        return answers;
    }

    private static JSONArray async(DefaultMQProducer producer, JSONObject request, int start, int count)
            throws Exception {
        Object[] answers = new Object[count];
        CountDownLatch open = new CountDownLatch(count);
        for (int index = start; index < start + count; index++) {
            int place = index - start;
            producer.send(MessageJson.build(request, index), new SendCallback() {
                @Override
                public void onSuccess(SendResult result) {
                    answers[place] = answer(result);
                    open.countDown();
                }

                @Override
                public void onException(Throwable problem) {
                    answers[place] = problem.toString();
                    open.countDown();
                }
            }, SEND_TIMEOUT_MS);
        }
        if (!open.await(60, TimeUnit.SECONDS)) {
            throw new IllegalStateException(open.getCount() + " asynchronous sends were never answered");
        }
        return JSONArray.of(answers);
    }

    private static JSONObject answer(SendResult result) {
        JSONObject json = new JSONObject();
        json.put("status", result.getSendStatus().name());
        json.put("message_id", result.getMsgId());
        json.put("offset_message_id", result.getOffsetMsgId());
        json.put("broker_name", result.getMessageQueue().getBrokerName());
        json.put("queue_id", result.getMessageQueue().getQueueId());
        json.put("queue_offset", result.getQueueOffset());
        json.put("region", result.getRegionId());
        json.put("recall_handle", Generation.recallHandle(result));
        return json;
    }

    DefaultMQProducer producer(JSONObject request) throws Exception {
        String name = request.getString("name");
        DefaultMQProducer producer = producers.get(name);
        if (producer == null) {
            producer = Generation.producer(request);
            producer.setNamesrvAddr(request.getString("namesrv"));
            // Another one of this name may not have ended yet.
            producer.setInstanceName(retirements == 0 ? name : name + "~" + retirements);
            producer.setSendMsgTimeout(SEND_TIMEOUT_MS);
            producer.setDefaultTopicQueueNums(request.getIntValue("default_queue_count", 4));
            if (request.containsKey("compress_over_bytes")) {
                producer.setCompressMsgBodyOverHowmuch(request.getIntValue("compress_over_bytes"));
            }
            producer.setSendLatencyFaultEnable(request.getBooleanValue("send_latency_fault"));
            producer.setLatencyMax(LATENCIES_MS);
            producer.setNotAvailableDuration(AVOIDED_FOR_MS);
            producer.setRetryTimesWhenSendFailed(request.getIntValue("retries", producer.getRetryTimesWhenSendFailed()));
            producer.setPollNameServerInterval(
                    request.getIntValue("poll_namesrv_ms", producer.getPollNameServerInterval()));
            producer.start();
            producers.put(name, producer);
        }
        return producer;
    }
}
