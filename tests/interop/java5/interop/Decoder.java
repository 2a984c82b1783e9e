package interop;

import java.io.BufferedReader;
import java.io.BufferedWriter;
import java.io.InputStreamReader;
import java.io.OutputStreamWriter;
import java.lang.reflect.Field;
import java.lang.reflect.Modifier;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.Collection;
import java.util.HashMap;
import java.util.IdentityHashMap;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.Callable;
import org.apache.rocketmq.remoting.CommandCustomHeader;
import org.apache.rocketmq.remoting.protocol.FastCodesHeader;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;
import org.apache.rocketmq.remoting.protocol.RemotingSerializable;

/**
 * Reads bodies and headers with the official decoders and prints what they hold; its other half is official_decoder.py.
 *
 * <p>A line of input is a kind, a class and what to read in base64, separated by tabs; a line of output is the answer as
 * JSON. Kinds: "body" answers {"now": ..., "before": ...}, by release 5.5.0 (fastjson 2) and by the decoder of the
 * releases before it (fastjson 1.2); "header" reads a map of ext fields as the header class reads it; "fast" tells
 * whether a header class decodes itself. A result is {"value": ...} or {"refused": "exception"}. An object is the map of
 * its fields, a set {"@set": [...]}, a map {"@map": [[key, value], ...]}.
 */
public final class Decoder {
    private Decoder() {
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
            String[] words = line.split("\t", -1);
            StringBuilder answer = new StringBuilder();
            answer(words[0], Class.forName(words[1]), Base64.getDecoder().decode(words[2]), answer);
            output.append(answer).append('\n');
        }
        output.flush();
    }

    private static void answer(String kind, Class<?> type, byte[] data, StringBuilder out) {
        switch (kind) {
            case "body":
                out.append("{\"now\":");
                result(() -> RemotingSerializable.decode(data, type), out);
                out.append(",\"before\":");
                result(() -> com.alibaba.fastjson.JSON.parseObject(data, type), out);
                out.append('}');
                return;
            case "header":
                result(() -> header(type.asSubclass(CommandCustomHeader.class), data), out);
                return;
            case "fast":
                out.append(FastCodesHeader.class.isAssignableFrom(type));
                return;
            default:
                throw new IllegalArgumentException(kind);
        }
    }

    private static Object header(Class<? extends CommandCustomHeader> type, byte[] data) throws Exception {
        HashMap<String, String> fields = new HashMap<>();
        for (String line : new String(data, StandardCharsets.UTF_8).split("\n")) {
            String[] pair = line.split("\t", -1);
            if (pair.length == 2) {
                Base64.Decoder decoder = Base64.getDecoder();
                fields.put(new String(decoder.decode(pair[0]), StandardCharsets.UTF_8),
                    new String(decoder.decode(pair[1]), StandardCharsets.UTF_8));
            }
        }
        RemotingCommand command = RemotingCommand.createRequestCommand(0, null);
        command.setExtFields(fields);
        return command.decodeCommandCustomHeader(type);
    }

    private static void result(Callable<Object> decode, StringBuilder out) {
        StringBuilder value = new StringBuilder("{\"value\":");
        try {
            write(decode.call(), value, new IdentityHashMap<>());
            out.append(value).append('}');
        } catch (Throwable error) {
            Throwable cause = error;
            while (cause.getCause() != null) {
                cause = cause.getCause();
            }
            out.append("{\"refused\":");
            text(String.valueOf(cause), out);
            out.append('}');
        }
    }

    private static void write(Object value, StringBuilder out, IdentityHashMap<Object, Object> parents)
        throws IllegalAccessException {
        if (value == null || value instanceof Boolean || value instanceof Integer || value instanceof Long
            || value instanceof Short || value instanceof Byte || value instanceof java.math.BigInteger
            || value instanceof java.util.concurrent.atomic.AtomicLong
            || value instanceof java.util.concurrent.atomic.AtomicBoolean) {
            out.append(value);
        } else if (value instanceof Double) {
            double number = (Double) value;
            if (Double.isFinite(number)) {
                out.append(number);
            } else {
                text(String.valueOf(number), out);
            }
        } else if (value instanceof String) {
            text((String) value, out);
        } else if (value instanceof Enum) {
            text(((Enum<?>) value).name(), out);
        } else if (value instanceof long[]) {
            out.append(java.util.Arrays.toString((long[]) value));
        } else if (value instanceof java.util.BitSet) {
            java.util.BitSet bits = (java.util.BitSet) value;
            out.append("{\"@bits\":").append(java.util.Arrays.toString(bits.stream().toArray())).append('}');
        } else if (parents.put(value, value) != null) {
            out.append("{\"@cycle\":true}");
        } else {
            structure(value, out, parents);
            parents.remove(value);
        }
    }

    private static void structure(Object value, StringBuilder out, IdentityHashMap<Object, Object> parents)
        throws IllegalAccessException {
        if (value instanceof Collection) {
            out.append(value instanceof Set ? "{\"@set\":[" : "[");
            String separator = "";
            for (Object item : (Collection<?>) value) {
                out.append(separator);
                write(item, out, parents);
                separator = ",";
            }
            out.append(value instanceof Set ? "]}" : "]");
        } else if (value instanceof Map) {
            out.append("{\"@map\":[");
            String separator = "";
            for (Map.Entry<?, ?> entry : ((Map<?, ?>) value).entrySet()) {
                out.append(separator).append('[');
                write(entry.getKey(), out, parents);
                out.append(',');
                write(entry.getValue(), out, parents);
                out.append(']');
                separator = ",";
            }
            out.append("]}");
        } else if (value.getClass().getName().startsWith("org.apache.rocketmq.")) {
            object(value, out, parents);
        } else {
            out.append("{\"@other\":");
            text(value.getClass().getName(), out);
            out.append('}');
        }
    }

    private static void object(Object value, StringBuilder out, IdentityHashMap<Object, Object> parents)
        throws IllegalAccessException {
        Map<String, Field> fields = new TreeMap<>();
        for (Class<?> type = value.getClass(); type != Object.class; type = type.getSuperclass()) {
            for (Field field : type.getDeclaredFields()) {
                if (!Modifier.isStatic(field.getModifiers())) {
                    fields.putIfAbsent(field.getName(), field);
                }
            }
        }
        out.append('{');
        String separator = "";
        for (Field field : fields.values()) {
            field.setAccessible(true);
            out.append(separator);
            text(field.getName(), out);
            out.append(':');
            write(field.get(value), out, parents);
            separator = ",";
        }
        out.append('}');
    }

    private static void text(String value, StringBuilder out) {
        out.append('"');
        for (int i = 0; i < value.length(); i++) {
            char letter = value.charAt(i);
            if (letter < ' ' || letter > '~' || letter == '"' || letter == '\\') {
                out.append(String.format("\\u%04x", (int) letter));
            } else {
                out.append(letter);
            }
        }
        out.append('"');
    }
}
