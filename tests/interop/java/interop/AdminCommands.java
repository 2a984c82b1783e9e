package interop;

import com.alibaba.fastjson2.JSONObject;
import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/** The official mqadmin commands, run in this process with what they print captured. */
final class AdminCommands extends MQAdminStartup {
    private AdminCommands() {}

    /** Runs {"arguments": ["topicList", "-n", ...]} and returns all it printed, standard error included. */
    static Object run(JSONObject request) {
        String[] arguments = request.getList("arguments", String.class).toArray(new String[0]);
        ByteArrayOutputStream printed = new ByteArrayOutputStream();
        PrintStream out = System.out;
        PrintStream err = System.err;
        PrintStream capture = new PrintStream(printed, true, StandardCharsets.UTF_8);
        System.setOut(capture);
        System.setErr(capture);
        try {
            // Command objects keep a client from the run before; every run gets new ones, as in a process of its own.
            SUB_COMMANDS.clear();
            MQAdminStartup.main0(arguments, null);
        } finally {
            System.setOut(out);
            System.setErr(err);
        }
        return printed.toString(StandardCharsets.UTF_8);
    }
}
