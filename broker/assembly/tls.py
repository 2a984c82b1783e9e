"""TLS of the broker's port: the front in this process, and the TLS process, which does all that is computed.

made    key, certificate and trust are read once, so that a wrong file ends the start; nothing runs yet
start   the TLS process, if all connections must be TLS, or key and certificate are named; else the first TLS
        connection starts it
close   after the port: the TLS process ends when it has sent what was written
"""

import logging
from collections.abc import Callable

from thermocline.broker.helpers import HelperSpec, HelperStatus, SupervisedHelper
from thermocline.broker.settings import BrokerSettings
from thermocline.remoting.tls import ThreadedTls, TlsFront, check_files

logger = logging.getLogger(__name__)

TLS_ROLE = "tls"
STOP_TIMEOUT_MS = 4_000


class BrokerTls:
    """See the module's header. On the loop."""

    def __init__(
        self, settings: BrokerSettings, *, in_process: bool, log_level: str, now_ms: Callable[[], int]
    ) -> None:
        """`in_process`: a thread instead of a process.

        Raises:
            SettingError: A file of key, certificate or trust cannot be used.
        """
        config = settings.tls
        check_files(config)
        self._thread: ThreadedTls | None = None
        self._helper: SupervisedHelper | None = None
        self._is_launched = False
        if in_process:
            self._thread = ThreadedTls(config)
            self.front = self._thread.front
            return
        self.front = TlsFront(config, launch=self._launch)
        spec = HelperSpec(
            name=TLS_ROLE,
            module="thermocline.broker.tls_process",
            arguments=(f"--nice={config.helper_nice}", f"--log-level={log_level}"),
            stdin=self.front.new_link,
        )
        self._helper = SupervisedHelper(spec, now_ms=now_ms)

    def start(self) -> None:
        """See the module's header."""
        self.front.start()

    def statuses(self) -> list[HelperStatus]:
        """The TLS process, once it was needed."""
        return [self._helper.status()] if self._helper is not None and self._is_launched else []

    async def close(self) -> None:
        """See the module's header. Idempotent."""
        if self._thread is not None:
            await self._thread.close()
        await self.front.close()
        if self._helper is not None:
            await self._helper.stop(timeout_ms=STOP_TIMEOUT_MS)

    def _launch(self) -> None:
        """The supervisor starts it again by itself."""
        assert self._helper is not None
        if not self._is_launched:
            self._is_launched = True
            self._helper.start()
