package interop;

import com.alibaba.fastjson2.JSONObject;
import org.apache.rocketmq.remoting.netty.TlsSystemConfig;

/**
 * How clients speak TLS that are made from now on. The official clients take it from system properties, which they read
 * when the process starts; these are the values that were read.
 */
final class Tls {
    private Tls() {}

    /** {enable, trust, certificate, key}: whether it is spoken, and the files; without certificate none is shown. */
    static Object configure(JSONObject request) {
        TlsSystemConfig.tlsEnable = request.getBooleanValue("enable");
        TlsSystemConfig.tlsTestModeEnable = false;
        TlsSystemConfig.tlsClientAuthServer = true;
        TlsSystemConfig.tlsClientTrustCertPath = request.getString("trust");
        TlsSystemConfig.tlsClientCertPath = request.getString("certificate");
        TlsSystemConfig.tlsClientKeyPath = request.getString("key");
        System.setProperty(TlsSystemConfig.TLS_ENABLE, String.valueOf(TlsSystemConfig.tlsEnable));
        return null;
    }
}
