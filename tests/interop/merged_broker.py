"""A broker with a proxy in its process group: its options, and where the proxy serves."""

from __future__ import annotations

import re
from collections.abc import Mapping

from thermocline.localstack.child_process import ChildProcess

READY_LINE = re.compile(r"^ready .*\bproxy=(?P<address>\S+)(?: remoting=(?P<remoting>\S+))?", re.MULTILINE)
PROXY_SETTINGS = {
    "remotingListenPort": "0",
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
    """Where the proxy of a broker that is ready serves gRPC clients."""
    return _ready(process)["address"]


def merged_remoting_address(process: ChildProcess) -> str:
    """Where it serves remoting clients."""
    return _ready(process)["remoting"]


def _ready(process: ChildProcess) -> re.Match[str]:
    ready = READY_LINE.search(process.output())
    assert ready is not None, process.output()[-3_000:]
    return ready


def assignments(option: str, settings: Mapping[str, str]) -> list[str]:
    """The words of a command line that set them."""
    return [word for name, value in settings.items() for word in (option, f"{name}={value}")]
