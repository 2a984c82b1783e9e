package interop;

import com.alibaba.fastjson2.JSONObject;
import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Set;
import java.util.regex.Pattern;

/** The official mqadmin commands, run in this process with what they print captured. */
final class AdminCommands {
    private AdminCommands() {}

    /**
     * Runs a command that never ends by itself, {arguments, pattern, timeout_ms}, until it has printed a line with the
     * pattern; returns all it printed.
     */
    static Object runUntil(JSONObject request) throws Exception {
        ByteArrayOutputStream printed = new ByteArrayOutputStream();
        PrintStream out = System.out;
        PrintStream capture = new PrintStream(printed, true, StandardCharsets.UTF_8);
        Thread command = new Thread(
                () -> MqAdmin.run(request.getList("arguments", String.class).toArray(new String[0])),
                "endless-command");
        Pattern pattern = Pattern.compile(request.getString("pattern"));
        long deadline = System.nanoTime() + request.getLongValue("timeout_ms") * 1_000_000;
        System.setOut(capture);
        try {
            command.start();
            while (!pattern.matcher(printed.toString(StandardCharsets.UTF_8)).find()) {
                if (System.nanoTime() > deadline || !command.isAlive()) {
                    throw new IllegalStateException("printed only: " + printed.toString(StandardCharsets.UTF_8));
                }
                command.join(50);
            }
            return printed.toString(StandardCharsets.UTF_8);
        } finally {
            System.setOut(out);
            command.interrupt();
            command.join(10_000);
        }
    }

    /** Runs {"arguments": ["topicList", "-n", ...]} and returns all it printed, standard error included. */
    static Object run(JSONObject request) {
        String[] arguments = request.getList("arguments", String.class).toArray(new String[0]);
        ByteArrayOutputStream printed = new ByteArrayOutputStream();
        PrintStream out = System.out;
        PrintStream err = System.err;
        PrintStream capture = new PrintStream(printed, true, StandardCharsets.UTF_8);
        System.setOut(capture);
        System.setErr(capture);
        Thread hastener = hastenShutdown(Thread.currentThread());
        try {
            MqAdmin.run(arguments);
        } finally {
            hastener.interrupt();
            System.setOut(out);
            System.setErr(err);
        }
        return printed.toString(StandardCharsets.UTF_8);
    }

    /**
     * Starts a thread that wakes the event thread of a client for whose end a command waits. It looks at its queue every
     * three seconds only, and half of all commands would take that long for nothing.
     */
    private static Thread hastenShutdown(Thread command) {
        Set<Thread> others = Thread.getAllStackTraces().keySet();
        Thread hastener = new Thread(
                () -> {
                    try {
                        while (true) {
                            Thread.sleep(20);
                            boolean waits = Arrays.stream(command.getStackTrace())
                                    .anyMatch(frame -> frame.getClassName().endsWith("ServiceThread"));
                            for (Thread thread : waits ? Thread.getAllStackTraces().keySet() : Set.<Thread>of()) {
                                if (thread.getName().equals("NettyEventExecutor") && !others.contains(thread)) {
                                    thread.interrupt();
                                }
                            }
                        }
                    } catch (InterruptedException end) {
                        // The command has ended.
                    }
                },
                "shutdown-hastener");
        hastener.setDaemon(true);
        hastener.start();
        return hastener;
    }
}
