package interop;

import java.io.FileOutputStream;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * A file that outlives its process: one line an event, fields separated by tabs, written before anything else follows
 * from the event. {@code load_journal.py} reads it, and {@code go/journal.go} writes the same.
 */
final class Journal {
    private final FileOutputStream file;

    Journal(String path) throws IOException {
        file = new FileOutputStream(path, true);
    }

    /** A message that a producer has an outcome for; dueMs is 0 when it is due at once. */
    void sent(int number, long sentMs, String outcome, long dueMs) {
        String word = outcome.replaceAll("\\s+", " ");
        line(number + "\t" + sentMs + "\t" + System.currentTimeMillis() + "\t" + dueMs + "\t" + word);
    }

    /** A message that a listener is about to take, or to refuse. */
    void received(MessageExt message, boolean taken) {
        String body = new String(message.getBody(), StandardCharsets.UTF_8);
        line(System.currentTimeMillis() + "\t" + (taken ? "taken" : "refused") + "\t" + message.getTopic() + "\t"
                + message.getQueueId() + "\t" + message.getQueueOffset() + "\t" + message.getReconsumeTimes() + "\t"
                + message.getStoreTimestamp() + "\t" + body.length() + "\t" + body.replace(".", ""));
    }

    private synchronized void line(String text) {
        try {
            file.write((text + "\n").getBytes(StandardCharsets.UTF_8));
        } catch (IOException problem) {
            throw new UncheckedIOException(problem);
        }
    }
}
