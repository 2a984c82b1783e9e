package interop;

import com.alibaba.fastjson2.JSON;
import com.alibaba.fastjson2.JSONArray;
import com.alibaba.fastjson2.JSONObject;
import java.io.BufferedReader;
import java.io.BufferedWriter;
import java.io.InputStreamReader;
import java.io.OutputStreamWriter;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import org.apache.rocketmq.common.ControllerConfig;
import org.apache.rocketmq.controller.elect.impl.DefaultElectPolicy;
import org.apache.rocketmq.controller.helper.BrokerValidPredicate;
import org.apache.rocketmq.controller.impl.event.ControllerResult;
import org.apache.rocketmq.controller.impl.event.EventMessage;
import org.apache.rocketmq.controller.impl.heartbeat.BrokerLiveInfo;
import org.apache.rocketmq.controller.impl.manager.ReplicasInfoManager;
import org.apache.rocketmq.remoting.CommandCustomHeader;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;
import org.apache.rocketmq.remoting.protocol.RemotingSerializable;
import org.apache.rocketmq.remoting.protocol.body.SyncStateSet;
import org.apache.rocketmq.remoting.protocol.header.controller.AlterSyncStateSetRequestHeader;
import org.apache.rocketmq.remoting.protocol.header.controller.ElectMasterRequestHeader;
import org.apache.rocketmq.remoting.protocol.header.controller.GetReplicaInfoRequestHeader;
import org.apache.rocketmq.remoting.protocol.header.controller.admin.CleanControllerBrokerDataRequestHeader;
import org.apache.rocketmq.remoting.protocol.header.controller.register.ApplyBrokerIdRequestHeader;
import org.apache.rocketmq.remoting.protocol.header.controller.register.GetNextBrokerIdRequestHeader;
import org.apache.rocketmq.remoting.protocol.header.controller.register.RegisterBrokerToControllerRequestHeader;

/**
 * Asks the official controller's tables of replica sets; its other half is official_replica_sets.py.
 *
 * <p>A line of input is {"kind": "begin", "unclean": ...}, which begins with empty tables, or {"kind": "live", "brokers":
 * [...]}, which replaces the living brokers, or a request {"kind": code, "fields": ext fields, "body": text}. The answer
 * to a request is {"code", "remark", "fields", "body"}; what it decides is applied at once.
 */
public final class ReplicaSets {
    private static final Map<String, BrokerLiveInfo> LIVE = new HashMap<>();
    private static ReplicasInfoManager tables; // made by "begin": what its class logs must not reach our output

    private ReplicaSets() {
    }

    public static void main(String[] arguments) throws Exception {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        BufferedWriter output = new BufferedWriter(new OutputStreamWriter(System.out, StandardCharsets.UTF_8));
        System.setOut(System.err); // the software's logging writes to it
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            if (line.isEmpty()) {
                output.flush();
                continue;
            }
            output.write(JSON.toJSONString(answer(JSON.parseObject(line))));
            output.write('\n');
        }
        output.flush();
    }

    private static JSONObject answer(JSONObject question) throws Exception {
        String kind = question.getString("kind");
        if (kind.equals("begin")) {
            ControllerConfig config = new ControllerConfig();
            config.setEnableElectUncleanMaster(question.getBooleanValue("unclean"));
            tables = new ReplicasInfoManager(config);
            LIVE.clear();
            return new JSONObject();
        }
        if (kind.equals("live")) {
            LIVE.clear();
            for (Object item : question.getJSONArray("brokers")) {
                JSONObject broker = (JSONObject) item;
                long id = broker.getLongValue("id");
                BrokerLiveInfo info = new BrokerLiveInfo(broker.getString("name"), "", id, 0, 0, null,
                    broker.getIntValue("epoch"), broker.getLongValue("offset"), broker.getIntValue("priority"));
                LIVE.put(key(broker.getString("cluster"), broker.getString("name"), id), info);
            }
            return new JSONObject();
        }
        ControllerResult<?> result = decide(Integer.parseInt(kind), question);
        if (result.getEvents() != null) {
            for (EventMessage event : result.getEvents()) {
                tables.applyEvent(event);
            }
        }
        RemotingCommand response = RemotingCommand.createResponseCommandWithHeader(
            result.getResponseCode(), (CommandCustomHeader) result.getResponse());
        response.makeCustomHeaderToNet();
        JSONObject answer = new JSONObject();
        answer.put("code", result.getResponseCode());
        answer.put("remark", result.getRemark());
        answer.put("fields", response.getExtFields() == null ? new HashMap<>() : response.getExtFields());
        answer.put("body", result.getBody() == null ? "" : new String(result.getBody(), StandardCharsets.UTF_8));
        return answer;
    }

    private static ControllerResult<?> decide(int code, JSONObject question) throws Exception {
        BrokerValidPredicate isAlive = (cluster, name, id) -> LIVE.containsKey(key(cluster, name, id));
        RemotingCommand request = RemotingCommand.createRequestCommand(code, null);
        HashMap<String, String> fields = new HashMap<>();
        question.getJSONObject("fields").forEach((name, value) -> fields.put(name, String.valueOf(value)));
        request.setExtFields(fields);
        String body = question.getString("body");
        switch (code) {
            case 1001:
                return tables.alterSyncStateSet(header(request, AlterSyncStateSetRequestHeader.class),
                    RemotingSerializable.decode(body.getBytes(StandardCharsets.UTF_8), SyncStateSet.class), isAlive);
            case 1002:
                return tables.electMaster(header(request, ElectMasterRequestHeader.class),
                    new DefaultElectPolicy(isAlive, (cluster, name, id) -> LIVE.get(key(cluster, name, id))));
            case 1003:
                return tables.registerBroker(header(request, RegisterBrokerToControllerRequestHeader.class), isAlive);
            case 1004:
                return tables.getReplicaInfo(header(request, GetReplicaInfoRequestHeader.class));
            case 1006:
                return tables.getSyncStateData(JSONArray.parseArray(body, String.class), isAlive);
            case 1011:
                return tables.cleanBrokerData(header(request, CleanControllerBrokerDataRequestHeader.class), isAlive);
            case 1012:
                return tables.getNextBrokerId(header(request, GetNextBrokerIdRequestHeader.class));
            case 1013:
                return tables.applyBrokerId(header(request, ApplyBrokerIdRequestHeader.class));
            default:
                throw new IllegalArgumentException("no request of the tables: " + code);
        }
    }

    @SuppressWarnings("unchecked")
    private static <T extends CommandCustomHeader> T header(RemotingCommand request, Class<T> type) throws Exception {
        return (T) request.decodeCommandCustomHeader(type);
    }

    private static String key(String cluster, String name, Long id) {
        return cluster + '/' + name + '/' + id;
    }
}
