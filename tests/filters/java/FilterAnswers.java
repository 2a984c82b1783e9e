import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.HashMap;
import java.util.Map;
import org.apache.rocketmq.filter.FilterFactory;
import org.apache.rocketmq.filter.expression.EvaluationContext;
import org.apache.rocketmq.filter.expression.Expression;
import org.apache.rocketmq.filter.expression.MQFilterException;

/**
 * What the official filter library makes of expressions.
 *
 * Standard input: a line for each question, its words in Base64: the expression, then property texts (name 1 value 2).
 * Standard output: a line for each answer: R when the expression is rejected, else a letter for each property text:
 * T and F for true and false, N for null, E when the evaluation throws.
 */
public final class FilterAnswers {

    public static void main(String[] arguments) throws Exception {
        BufferedReader questions = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        PrintStream answers = new PrintStream(System.out, false, "US-ASCII");
        for (String line = questions.readLine(); line != null; line = questions.readLine()) {
            answers.println(answer(line.split(" ", -1)));
        }
        answers.flush();
    }

    private static String answer(String[] words) {
        Expression expression;
        try {
            expression = FilterFactory.INSTANCE.get("SQL92").compile(decode(words[0]));
        } catch (MQFilterException rejection) {
            return "R";
        }
        StringBuilder letters = new StringBuilder();
        for (int i = 1; i < words.length; i++) {
            letters.append(evaluate(expression, properties(decode(words[i]))));
        }
        return letters.toString();
    }

    private static char evaluate(Expression expression, Map<String, String> properties) {
        Object result;
        try {
            result = expression.evaluate(new Context(properties));
        } catch (Throwable failure) {
            return 'E';
        }
        if (result == null) {
            return 'N';
        }
        return result == Boolean.TRUE || result.equals(Boolean.TRUE) ? 'T' : 'F';
    }

    private static String decode(String word) {
        return new String(Base64.getDecoder().decode(word), StandardCharsets.UTF_8);
    }

    private static Map<String, String> properties(String text) {
        Map<String, String> properties = new HashMap<>();
        for (String piece : text.split("\u0002")) {
            int end = piece.indexOf('\u0001');
            if (end > 0) {
                properties.put(piece.substring(0, end), piece.substring(end + 1));
            }
        }
        return properties;
    }

    private static final class Context implements EvaluationContext {
        private final Map<String, String> properties;

        Context(Map<String, String> properties) {
            this.properties = properties;
        }

        @Override
        public Object get(String name) {
            return properties.get(name);
        }

        @Override
        public Map<String, Object> keyValues() {
            return new HashMap<>(properties);
        }
    }
}
