package interop;

import com.alibaba.fastjson2.JSONObject;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** Messages as the tests see them, and the bodies that both sides can compute from a number. */
final class MessageJson {
    private MessageJson() {}

    /** Body number {@code index}: "prefix-index", then dots up to the requested size. */
    static byte[] body(String prefix, int index, int sizeBytes) {
        StringBuilder text = new StringBuilder(prefix).append('-').append(index);
        while (text.length() < sizeBytes) {
            text.append('.');
        }
        return text.toString().getBytes(StandardCharsets.UTF_8);
    }

    static JSONObject of(MessageExt message) {
        JSONObject json = new JSONObject();
        json.put("topic", message.getTopic());
        json.put("broker_name", message.getBrokerName());
        json.put("queue_id", message.getQueueId());
        json.put("queue_offset", message.getQueueOffset());
        json.put("physical_offset", message.getCommitLogOffset());
        json.put("store_size", message.getStoreSize());
        json.put("message_id", message.getMsgId());
        json.put("sys_flag", message.getSysFlag());
        json.put("flag", message.getFlag());
        json.put("body", Base64.getEncoder().encodeToString(message.getBody()));
        json.put("tags", message.getTags());
        json.put("keys", message.getKeys());
        json.put("properties", message.getProperties());
        json.put("reconsume_times", message.getReconsumeTimes());
        json.put("born_timestamp_ms", message.getBornTimestamp());
        json.put("store_timestamp_ms", message.getStoreTimestamp());
        return json;
    }

    /** Message number {@code index} of a produce request. */
    static Message build(JSONObject request, int index) {
        String prefix = request.getString("prefix");
        Message message = new Message(
                request.getString("topic"), body(prefix, index, request.getIntValue("body_bytes", 0)));
        if (request.getList("tags", String.class) != null) {
            message.setTags(request.getList("tags", String.class).get(index % request.getJSONArray("tags").size()));
        }
        message.setKeys(prefix + "-key-" + index);
        message.putUserProperty("index", Integer.toString(index));
        JSONObject properties = request.getJSONObject("properties");
        if (properties != null) {
            properties.forEach((name, value) -> message.putUserProperty(name, value.toString()));
        }
        if (request.containsKey("delay_level")) {
            message.setDelayTimeLevel(request.getIntValue("delay_level"));
        }
        Generation.setTime(message, request);
        return message;
    }
}
