package interop;

import com.alibaba.fastjson2.JSON;
import com.alibaba.fastjson2.JSONObject;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.TreeMap;

/**
 * One JVM that drives official RocketMQ clients for the tests, so that a test pays no JVM start. It is compiled for one
 * generation of them: what differs is in classes that each has of its own, under one name.
 *
 * <p>Protocol: one JSON object a line. In: {"operation": NAME, ...arguments}. Out: {"result": ...} or {"error": TEXT},
 * in the order of the requests. Producers and consumers live on between requests under the names the caller gave them.
 * What the clients themselves print goes to standard error.
 */
public final class Agent {
    interface Operation {
        Object run(JSONObject arguments) throws Exception;
    }

    private final Map<String, Operation> operations = new TreeMap<>();

    private Agent() {
        Producers producers = new Producers();
        Transactions transactions = new Transactions();
        Consumers consumers = new Consumers();
        operations.put("admin", AdminCommands::run);
        operations.put("admin_until", AdminCommands::runUntil);
        operations.put("produce", producers::produce);
        operations.put("request", producers::request);
        operations.put("stop_producer", producers::stop);
        operations.put("stop_producers", producers::stopAll);
        operations.put("producers", producers::names);
        operations.put("retire_producers", producers::retire);
        operations.put("start_transaction_producer", transactions::start);
        operations.put("transact", transactions::transact);
        operations.put("checks", transactions::checks);
        operations.put("resume_check", transactions::resumeCheck);
        operations.put("stop_transaction_producer", transactions::stop);
        operations.put("start_push_consumer", consumers::startPush);
        operations.put("start_replier", consumers::startReplier);
        operations.put("start_lite_pull_consumer", consumers::startLitePull);
        operations.put("received", consumers::received);
        operations.put("assigned", consumers::assigned);
        operations.put("rebalance", consumers::rebalance);
        operations.put("stop_consumer", consumers::stop);
        operations.put("read_topic", TopicReader::read);
        operations.put("journal_topic", TopicReader::journal);
        operations.put("queue_offsets", TopicReader::offsets);
        operations.put("query_key", Lookups::byKey);
        operations.put("query_unique_id", Lookups::byUniqueId);
        operations.put("send_to", Lookups::sendTo);
        operations.put("tls", Tls::configure);
        operations.putAll(Generation.operations(producers));
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream answers = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        System.setOut(System.err);
        Agent agent = new Agent();
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            answers.println(agent.answer(line));
            answers.flush();
        }
        // Clients leave threads behind; the caller has closed the input and waits for this process to go.
        Runtime.getRuntime().halt(0);
    }

    private String answer(String line) {
        JSONObject answer = new JSONObject();
        try {
            JSONObject request = JSON.parseObject(line);
            Operation operation = operations.get(request.getString("operation"));
            if (operation == null) {
                throw new IllegalArgumentException("no such operation: " + request.getString("operation"));
            }
            answer.put("result", operation.run(request));
        } catch (Throwable problem) {
            problem.printStackTrace();
            answer.put("error", problem.toString());
        }
        return answer.toJSONString();
    }
}
