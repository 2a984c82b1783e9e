"""Helper links: the helper processes of one broker, and the page and the socket by which they reach it.

made            the shared page, the hub, the link to the index process
listen          helpers may connect
make_helpers    the helper processes, not started
start           the helper processes; after recovery: none runs while recovery truncates
close           the helper processes end, then the socket, then the page
"""

import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path

from thermocline.broker.assembly.helper_set import Helpers, TierKind, make_helpers
from thermocline.broker.follower import Source
from thermocline.broker.helpers import INDEX_ROLE, SOCKET_LIMITS, HelloReply, HelperHub, IndexLink, SharedPage
from thermocline.broker.process import current_build_id, runtime_folder, socket_path
from thermocline.broker.settings import BrokerSettings
from thermocline.remoting.connections import RemotingServer, ServerLimits
from thermocline.remoting.offsets import PhysicalOffset
from thermocline.store.message_store import MessageStore

INDEX_TIMEOUT_MS = 10_000
STOP_TIMEOUT_MS = 8_000


class HelperLinks:
    """See the module's header. On the loop."""

    helpers: Helpers

    def __init__(
        self,
        settings: BrokerSettings,
        store: MessageStore,
        *,
        environment: Mapping[str, str],
        source: Source | None,
        flushed: Callable[[], Awaitable[PhysicalOffset]],
        resources: AsyncExitStack,
    ) -> None:
        """`source`: the broker whose cold tier is served, read-only. `flushed`: makes the log durable up to its end and
        returns that offset. Everything closes with `resources`."""
        self._settings = settings
        self._resources = resources
        self._tier = TierKind.WRITER if source is None else TierKind.READ_ONLY
        if settings.broker.is_slave:
            self._tier = TierKind.SLAVE
        self._page_path = Path(store.config.own_path) / "shared-page"
        self._runtime_folder = runtime_folder(environment)
        self._store_uuid = store.identity.store_id
        self._socket_path = socket_path(self._runtime_folder, store_uuid=self._store_uuid)
        log = store.commit_log
        self.page = SharedPage.create(self._page_path, generation=time.time_ns(), build_id=current_build_id())
        self.page.publish(
            append_offset=log.append_offset,
            flush_offset=log.flush_offset,
            min_offset=log.min_offset,
            seal_offset=store.seal_offset,
        )
        resources.callback(self.page.close)
        self.hub = HelperHub(
            generation=self.page.generation,
            build_id=self.page.build_id,
            settings=HelloReply(
                store=settings.store,
                tier=settings.tier,
                store_uuid=store.identity.store_id,
                cluster_name=settings.broker.cluster_name if source is None else source.cluster_name,
                broker_name=settings.broker.broker_name if source is None else source.broker_name,
                was_clean=store.recovery_report.was_clean,
            ),
        )
        self.index = IndexLink(self.hub, flushed=flushed, timeout_ms=INDEX_TIMEOUT_MS)

    async def listen(self) -> None:
        """Take helpers on the unix socket from now on.

        Raises:
            OSError: The socket cannot be made.
        """
        Path(self._socket_path).unlink(missing_ok=True)  # a stale one: this process holds the store's lock
        # Helpers are ours, and niced: a frame of theirs may take long, and SOCKET_LIMITS bound what they send.
        server_limits = ServerLimits(frame_timeout_ms=1 << 40, receiving_bytes_max=1 << 40, unsent_bytes_max=1 << 40)
        server = RemotingServer(self.hub, limits=SOCKET_LIMITS, server_limits=server_limits, idle_timeout_ms=1 << 40)
        await server.start_unix(self._socket_path)
        self._resources.push_async_callback(server.close)

    def make_helpers(self, *, has_proxy: bool, in_process: bool, log_level: str, now_ms: Callable[[], int]) -> None:
        """Make the helpers, to be ended when the resources close. `in_process`: tasks of this loop, no processes."""
        self.helpers = make_helpers(
            has_tier=self._settings.tier.is_enabled,
            has_proxy=has_proxy,
            tier=self._tier,
            in_process=in_process,
            socket_path=self._socket_path,
            page_path=str(self._page_path),
            nice=self._settings.broker.helper_nice,
            log_level=log_level,
            now_ms=now_ms,
        )
        self._resources.push_async_callback(self.helpers.stop, timeout_ms=STOP_TIMEOUT_MS)

    def socket_path_for(self, kind: str) -> str:
        """The path of one more unix socket of this broker.

        Raises:
            InvalidParameterError: It is too long for a unix socket.
        """
        return socket_path(self._runtime_folder, store_uuid=self._store_uuid, kind=f"-{kind}")

    def start(self) -> None:
        """Start the helpers; returns at once."""
        self.helpers.start()

    @property
    def is_index_connected(self) -> bool:
        """Whether the index process is there."""
        return self.hub.is_connected(INDEX_ROLE)
