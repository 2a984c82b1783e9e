"""Merged proxy: the proxy for gRPC clients in the broker's process group, as the hot process has it.

made         its settings are ready for its HELLO; its process is one of the helpers
wait_ready   it serves
close        it drains, before anything else of the broker stops: its clients' requests are still answered
"""

from contextlib import AsyncExitStack

import msgspec

from thermocline.broker.assembly.helper_links import HelperLinks
from thermocline.broker.helpers import PROXY_ROLE, ProxyAddresses, ProxyLink, ProxySettings
from thermocline.broker.settings import BrokerSettings

READY_TIMEOUT_MS = 30_000
STOP_MARGIN_MS = 5_000
"""What a proxy's end may take beyond the time that its clients have."""


class ProxyPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The proxy that a broker is to have."""

    config: bytes
    """A ProxyConfig as msgpack; for the proxy alone."""
    drain_ms: int
    """How long its clients may take to end."""


class MergedProxy:
    """See the module's header. On the loop."""

    def __init__(self, plan: ProxyPlan, settings: BrokerSettings, helpers: HelperLinks) -> None:
        self._plan = plan
        self._helpers = helpers
        self.socket_path = helpers.socket_path_for(PROXY_ROLE)
        """Where the broker's port is to be served for it."""
        credentials = settings.auth.credentials()
        self._link = ProxyLink(
            helpers.hub,
            ProxySettings(
                config=plan.config,
                port=0,
                remoting_port=0,
                broker_name=settings.broker.broker_name,
                socket_path=self.socket_path,
                credentials=None
                if credentials is None
                else (credentials.access_key, credentials.secret_key, credentials.security_token),
            ),
        )

    def close_with(self, resources: AsyncExitStack) -> None:
        """Have it drained when `resources` close, before what they hold already."""
        resources.push_async_callback(
            self._helpers.helpers.stop_one, PROXY_ROLE, timeout_ms=self._plan.drain_ms + STOP_MARGIN_MS
        )

    async def wait_ready(self) -> ProxyAddresses:
        """Wait until it serves; where.

        Raises:
            InvalidRequestError: It cannot serve.
            UnavailableError: It does not start.
        """
        return await self._link.wait_ready(timeout_ms=READY_TIMEOUT_MS)
