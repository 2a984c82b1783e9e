import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import org.apache.rocketmq.filter.util.BloomFilter;
import org.apache.rocketmq.filter.util.BloomFilterData;

/** The bit positions that the official library gives each line of standard input, with the broker's default settings. */
public final class BloomPositions {

    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream answers = new PrintStream(System.out, false, "US-ASCII");
        BloomFilter filter = BloomFilter.createByFn(20, 32);
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            BloomFilterData data = filter.generate(line);
            answers.println(data.getBitNum() + " " + Arrays.toString(data.getBitPos()));
        }
        answers.flush();
    }
}
