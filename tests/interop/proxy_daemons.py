"""A NameServer, a broker and a proxy in front of them, as processes."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.interop.cluster import FREE_PORT, READY_TIMEOUT_S, thermocline_daemons
from tests.interop.killable_broker import SIGNS_OF_BUGS, daemon
from thermocline.localstack.child_process import ChildProcess

READY_LINE = re.compile(r"^ready proxy=(?P<address>\S+)", re.MULTILINE)
BROKER_SETTINGS = {
    "transactionTimeOut": "1000",
    "transactionCheckInterval": "1000",
    "recallMessageEnable": "true",
    "enablePropertyFilter": "true",
}

PROXY_SETTINGS = {
    "grpcShutdownTimeSeconds": "5",
    "topicRouteServiceCacheRefreshSeconds": "1",
    "grpcClientConsumerMinLongPollingTimeoutMillis": "500",
    "grpcClientConsumerMaxLongPollingTimeoutMillis": "1000",
}
"""Short polls: a Java push consumer waits for its polls when it is closed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxyDaemons:
    """Where they serve."""

    namesrv: str
    endpoint: str
    """The proxy's."""
    process: ChildProcess
    """The proxy."""


@contextlib.contextmanager
def running_proxy(
    directory: Path,
    *,
    namesrv: str,
    settings: Mapping[str, str] | None = None,
    listen: str = FREE_PORT,
    is_killed: bool = False,
) -> Iterator[tuple[str, ChildProcess]]:
    """`thermocline proxy`, ended at last by SIGTERM, or killed: its address and process.

    Fails when it logged a bug of ours.
    """
    directory.mkdir(parents=True, exist_ok=True)
    assignments = {**PROXY_SETTINGS, **(settings or {})}
    words = [word for name, value in assignments.items() for word in ("--set", f"{name}={value}")]
    process = daemon("proxy", "--namesrv", namesrv, "--listen", listen, *words, directory=directory)
    try:
        process.wait_until(lambda: READY_LINE.search(process.output()) is not None, timeout_s=READY_TIMEOUT_S)
        ready = READY_LINE.search(process.output())
        assert ready is not None
        yield ready["address"], process
        if is_killed:
            process.kill()
        else:
            assert process.stop() == 0, process.output()[-3_000:]
        assert not any(sign in process.output() for sign in SIGNS_OF_BUGS), process.output()[-5_000:]
    finally:
        process.kill()


@contextlib.contextmanager
def proxy_daemons(directory: Path, *, settings: Mapping[str, str] | None = None) -> Iterator[ProxyDaemons]:
    """All three. `settings`: of the proxy."""
    with (
        thermocline_daemons(directory, settings=BROKER_SETTINGS) as daemons,
        running_proxy(directory, namesrv=daemons.namesrv, settings=settings) as (endpoint, process),
    ):
        yield ProxyDaemons(namesrv=daemons.namesrv, endpoint=endpoint, process=process)
