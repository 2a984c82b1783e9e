package interop;

import com.alibaba.fastjson2.JSONObject;
import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.remoting.RPCHook;

/**
 * What signs the requests of a client: {access_key, secret_key, security_token}, else the keys of the system properties
 * interop.accessKey and interop.secretKey; without either nothing.
 */
final class Keys {
    private Keys() {}

    static RPCHook hook(JSONObject request) {
        String accessKey = word(request, "access_key", "interop.accessKey");
        String secretKey = word(request, "secret_key", "interop.secretKey");
        if (accessKey == null || accessKey.isEmpty()) {
            return null;
        }
        String token = request.getString("security_token");
        return new AclClientRPCHook(token == null
                ? new SessionCredentials(accessKey, secretKey)
                : new SessionCredentials(accessKey, secretKey, token));
    }

    private static String word(JSONObject request, String name, String property) {
        return request.containsKey(name) ? request.getString(name) : System.getProperty(property);
    }
}
