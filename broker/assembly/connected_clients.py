"""Connected clients: the producers and consumers at this broker's port, and its proxies with theirs.

They are of the port, not of a role: when the role changes they stay connected, and consumers would otherwise miss each
other at the broker until all have sent their next heartbeat.
"""

import asyncio
from collections.abc import Callable

from thermocline.broker.settings import BrokerSettings
from thermocline.broker.tables import ClientRegistry, ProxiedClients
from thermocline.remoting.connections import LimitCounts


class ConnectedClients:
    """On the loop."""

    def __init__(self, settings: BrokerSettings, *, clock: Callable[[], int], limits: LimitCounts) -> None:
        self.clients = ClientRegistry(
            clock=clock,
            call_soon=asyncio.get_running_loop().call_soon,
            is_notifying=lambda: settings.broker.notify_group_changes,
            config=lambda: settings.broker,
            limits=limits,
        )
        self.proxied = ProxiedClients(clock=clock, config=lambda: settings.broker, limits=limits)
