import java.io.PrintStream;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.TreeMap;

/**
 * Prints every setting of official configuration classes: class, name and default, separated by tabs, one a line.
 *
 * A setting is what MixAll.properties2Object can set (a setter) or MixAll.object2Properties shows (a field). A setting
 * with a setter alone has no default to show: "-".
 */
public final class OfficialSettings {
    public static void main(String[] classNames) throws Exception {
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8.name());
        for (String className : classNames) {
            for (Map.Entry<String, String> setting : settingsOf(Class.forName(className)).entrySet()) {
                out.println("SETTING\t" + className + "\t" + setting.getKey() + "\t" + setting.getValue());
            }
        }
    }

    private static Map<String, String> settingsOf(Class<?> type) throws Exception {
        Object object = type.getDeclaredConstructor().newInstance();
        Map<String, String> found = new TreeMap<>();
        for (Method method : type.getMethods()) {
            String name = method.getName();
            if (name.startsWith("set") && name.length() > 3 && method.getParameterCount() == 1) {
                found.put(name.substring(3, 4).toLowerCase() + name.substring(4), "-");
            }
        }
        for (Class<?> at = type; at != Object.class; at = at.getSuperclass()) {
            for (Field field : at.getDeclaredFields()) {
                if (!Modifier.isStatic(field.getModifiers()) && !field.getName().startsWith("this")) {
                    field.setAccessible(true);
                    Object value = field.get(object);
                    found.put(field.getName(), value == null ? "" : value.toString());
                }
            }
        }
        return found;
    }
}
