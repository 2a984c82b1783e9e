"""A broker with a proxy in its process group: its options, and where the proxy serves."""

from __future__ import annotations

import re
from collections.abc import Mapping

from thermocline.localstack.child_process import ChildProcess

READY_LINE = re.compile(r"^ready .*\bproxy=(?P<address>\S+)", re.MULTILINE)
PROXY_SETTINGS = {
    "grpcShutdownTimeSeconds": "5",
    "topicRouteServiceCacheRefreshSeconds": "1",
    "grpcClientConsumerMinLongPollingTimeoutMillis": "500",
    "grpcClientConsumerMaxLongPollingTimeoutMillis": "1000",
}
"""Short polls: a Java push consumer waits for its polls when it is closed."""


def merged_words(port: str = "0", settings: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """The options of a broker with a proxy on a port, 0 for a free one."""
    values = {**PROXY_SETTINGS, "grpcServerPort": port, **(settings or {})}
    return ("--proxy", *assignments("--proxy-set", values))


def merged_endpoint(process: ChildProcess) -> str:
    """Where the proxy of a broker that is ready serves."""
    ready = READY_LINE.search(process.output())
    assert ready is not None, process.output()[-3_000:]
    return ready["address"]


def assignments(option: str, settings: Mapping[str, str]) -> list[str]:
    """The words of a command line that set them."""
    return [word for name, value in settings.items() for word in (option, f"{name}={value}")]
