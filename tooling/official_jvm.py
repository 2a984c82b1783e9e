"""How tests start a JVM with official RocketMQ software in it: small, and quick to start.

As shipped, a NameServer takes 2.7 and a broker 6.7 CPU seconds to start, and the broker 10 more in its first ten
seconds. Most of it is none of what a test asks for:

    the logging configuration of the broker (40 KB of XML)   every program finds it that has the broker's jar
    a certificate that signs itself, with a new RSA key      `-Dtls.server.mode=...` for what does speak TLS
    a thread that counts transactions, and spins at first    for `transactionMetricFlushInterval`, which is 10 s
    a timer wheel of 38 MB, written anew each second         `timerFlushIntervalMs`

For figures the software runs as shipped: see `benchmarks/`.
"""

from __future__ import annotations

from pathlib import Path

__all__ = ["OPEN_MODULES", "QUICK_BROKER", "quick_jvm"]

OPEN_MODULES = (
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-opens=java.base/java.lang=ALL-UNNAMED",
    "--add-opens=java.base/java.util=ALL-UNNAMED",
    "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED",
    "--add-exports=java.base/sun.nio.ch=ALL-UNNAMED",
)
LOGGING = Path(__file__).with_name("official-logback.xml")
QUICK_BROKER = {"transactionMetricFlushInterval": "100", "timerFlushIntervalMs": "5000"}
"""Settings of a broker that behaves the same, and idles."""


def quick_jvm(directory: Path, *, heap_mb: int) -> list[str]:
    """The JVM's options. Logs and what else belongs to a home are in `directory`: `rocketmq.log`."""
    return [
        f"-Duser.home={directory}",
        f"-Xmx{heap_mb}m",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        f"-Drmq.logback.configurationFile={LOGGING}",
        "-Dtls.server.mode=disabled",
    ]
