package interop;

import com.alibaba.fastjson2.JSONArray;
import com.alibaba.fastjson2.JSONObject;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.AckCallback;
import org.apache.rocketmq.client.consumer.AckResult;
import org.apache.rocketmq.client.consumer.PopCallback;
import org.apache.rocketmq.client.consumer.PopResult;
import org.apache.rocketmq.client.impl.MQClientAPIImpl;
import org.apache.rocketmq.common.consumer.ReceiptHandle;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.remoting.protocol.header.AckMessageRequestHeader;
import org.apache.rocketmq.remoting.protocol.header.ChangeInvisibleTimeRequestHeader;
import org.apache.rocketmq.remoting.protocol.header.ExtraInfoUtil;
import org.apache.rocketmq.remoting.protocol.header.PopMessageRequestHeader;

/** Single POP requests, written and read by the official client's own code, one at a time and in the test's order. */
final class Pops {
    private static final long ANSWER_TIMEOUT_MS = 40_000;

    /** Of one for each NameServer only the request layer is used. */
    private final Producers producers;

    Pops(Producers producers) {
        this.producers = producers;
    }

    /**
     * Takes messages: {namesrv, broker_name, broker_address, topic, group, queue_id, count, invisible_ms, poll_ms,
     * order, expression}. Answers {status, pop_time_ms, invisible_ms, rest_count, messages}.
     */
    Object pop(JSONObject request) throws Exception {
        PopMessageRequestHeader header = new PopMessageRequestHeader();
        header.setConsumerGroup(request.getString("group"));
        header.setTopic(request.getString("topic"));
        header.setQueueId(request.getIntValue("queue_id", -1));
        header.setMaxMsgNums(request.getIntValue("count", 32));
        header.setInvisibleTime(request.getLongValue("invisible_ms"));
        header.setPollTime(request.getLongValue("poll_ms"));
        header.setBornTime(System.currentTimeMillis());
        header.setInitMode(0);
        header.setExpType("TAG");
        header.setExp(request.getString("expression") == null ? "*" : request.getString("expression"));
        header.setOrder(request.getBooleanValue("order"));
        CompletableFuture<PopResult> answer = new CompletableFuture<>();
        api(request).popMessageAsync(
                request.getString("broker_name"),
                request.getString("broker_address"),
                header,
                ANSWER_TIMEOUT_MS,
                new PopCallback() {
                    @Override
                    public void onSuccess(PopResult result) {
                        answer.complete(result);
                    }

                    @Override
                    public void onException(Throwable problem) {
                        answer.completeExceptionally(problem);
                    }
                });
        PopResult result = answer.get(ANSWER_TIMEOUT_MS, TimeUnit.MILLISECONDS);
        JSONArray messages = new JSONArray();
        if (result.getMsgFoundList() != null) {
            for (MessageExt message : result.getMsgFoundList()) {
                messages.add(MessageJson.of(message));
            }
        }
        JSONObject json = new JSONObject();
        json.put("status", result.getPopStatus().name());
        json.put("pop_time_ms", result.getPopTime());
        json.put("invisible_ms", result.getInvisibleTime());
        json.put("rest_count", result.getRestNum());
        json.put("messages", messages);
        return json;
    }

    /** Acknowledges {receipt} of {topic} for {group}; the status. */
    Object ack(JSONObject request) throws Exception {
        String[] receipt = ExtraInfoUtil.split(request.getString("receipt"));
        AckMessageRequestHeader header = new AckMessageRequestHeader();
        header.setConsumerGroup(request.getString("group"));
        header.setTopic(ExtraInfoUtil.getRealTopic(receipt, request.getString("topic"), request.getString("group")));
        header.setQueueId(ExtraInfoUtil.getQueueId(receipt));
        header.setOffset(ExtraInfoUtil.getQueueOffset(receipt));
        header.setExtraInfo(request.getString("receipt"));
        Answer answer = new Answer();
        api(request).ackMessageAsync(request.getString("broker_address"), ANSWER_TIMEOUT_MS, answer, header);
        return answer.await().getStatus().name();
    }

    /** Acknowledges all of {receipts} of {topic} for {group} in one request; the status. */
    Object batchAck(JSONObject request) throws Exception {
        Answer answer = new Answer();
        api(request).batchAckMessageAsync(
                request.getString("broker_address"),
                ANSWER_TIMEOUT_MS,
                answer,
                request.getString("topic"),
                request.getString("group"),
                request.getList("receipts", String.class));
        return answer.await().getStatus().name();
    }

    /** Has the message of {receipt} come back {invisible_ms} from now; {status, receipt} with the new receipt. */
    Object changeInvisible(JSONObject request) throws Exception {
        String[] receipt = ExtraInfoUtil.split(request.getString("receipt"));
        ChangeInvisibleTimeRequestHeader header = new ChangeInvisibleTimeRequestHeader();
        header.setConsumerGroup(request.getString("group"));
        header.setTopic(ExtraInfoUtil.getRealTopic(receipt, request.getString("topic"), request.getString("group")));
        header.setQueueId(ExtraInfoUtil.getQueueId(receipt));
        header.setOffset(ExtraInfoUtil.getQueueOffset(receipt));
        header.setExtraInfo(request.getString("receipt"));
        header.setInvisibleTime(request.getLongValue("invisible_ms"));
        Answer answer = new Answer();
        api(request).changeInvisibleTimeAsync(
                request.getString("broker_name"),
                request.getString("broker_address"),
                header,
                ANSWER_TIMEOUT_MS,
                answer);
        AckResult result = answer.await();
        JSONObject json = new JSONObject();
        json.put("status", result.getStatus().name());
        json.put("receipt", result.getExtraInfo());
        return json;
    }

    /** What the official code reads in {receipt}. */
    Object readReceipt(JSONObject request) {
        ReceiptHandle receipt = ReceiptHandle.decode(request.getString("receipt"));
        JSONObject json = new JSONObject();
        json.put("start_offset", receipt.getStartOffset());
        json.put("retrieve_time_ms", receipt.getRetrieveTime());
        json.put("invisible_ms", receipt.getInvisibleTime());
        json.put("next_visible_time_ms", receipt.getNextVisibleTime());
        json.put("revive_queue_id", receipt.getReviveQueueId());
        json.put("topic_type", receipt.getTopicType());
        json.put("broker_name", receipt.getBrokerName());
        json.put("queue_id", receipt.getQueueId());
        json.put("offset", receipt.getOffset());
        return json;
    }

    private MQClientAPIImpl api(JSONObject request) throws Exception {
        String namesrv = request.getString("namesrv");
        JSONObject client = JSONObject.of("name", "pops-" + namesrv, "group", "interop-pops", "namesrv", namesrv);
        return producers.producer(client).getDefaultMQProducerImpl().getMqClientFactory().getMQClientAPIImpl();
    }

    private static final class Answer implements AckCallback {
        private final CompletableFuture<AckResult> result = new CompletableFuture<>();

        @Override
        public void onSuccess(AckResult answered) {
            result.complete(answered);
        }

        @Override
        public void onException(Throwable problem) {
            result.completeExceptionally(problem);
        }

        AckResult await() throws Exception {
            return result.get(ANSWER_TIMEOUT_MS, TimeUnit.MILLISECONDS);
        }
    }
}
