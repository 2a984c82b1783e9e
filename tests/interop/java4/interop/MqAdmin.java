package interop;

import org.apache.rocketmq.tools.command.MQAdminStartup;

/** The entry point of mqadmin 4.9, as a process of its own would meet it. */
final class MqAdmin extends MQAdminStartup {
    private MqAdmin() {}

    /** Runs one command. Command objects keep a client from the run before, so every run gets new ones. */
    static void run(String... arguments) {
        subCommandList.clear();
        main0(arguments, null);
    }
}
