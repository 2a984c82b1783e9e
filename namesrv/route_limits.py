"""Route limits: bounds of the memory that registrations of brokers take in a NameServer.

Settings: name_server_config.py. A registration beyond them is refused with SYSTEM_BUSY and nothing of it is taken over;
a broker registers again after its period. Texts of more than NAME_CHARACTERS_MAX are refused as invalid.
Owner: the NameServer's event loop.
"""

from collections.abc import Callable, Iterable

from thermocline.namesrv.name_server_config import NameServerConfig
from thermocline.remoting.connections import LimitCounts
from thermocline.remoting.errors import BrokerBusyError, InvalidParameterError

NAME_CHARACTERS_MAX = 255
FILTER_SERVERS_MAX = 100


class RouteLimits:
    """Checks registrations, and counts refusals."""

    def __init__(self, *, config: Callable[[], NameServerConfig], limits: LimitCounts) -> None:
        self._config = config
        self._limits = limits

    def check_texts(self, texts: Iterable[str | None]) -> None:
        """Pass names and addresses that are short enough.

        Raises:
            InvalidParameterError: One is too long.
        """
        for text in texts:
            if text is not None and len(text) > NAME_CHARACTERS_MAX:
                raise InvalidParameterError("a name or an address is too long", characters=len(text))

    def check_filter_servers(self, filter_servers: tuple[str, ...]) -> None:
        """Pass a broker's list of filter servers.

        Raises:
            InvalidParameterError: It is too long.
        """
        if len(filter_servers) > FILTER_SERVERS_MAX:
            raise InvalidParameterError("too many filter servers", count=len(filter_servers))
        self.check_texts(filter_servers)

    def check_brokers(self, *, address: str, of_connection: int, in_all: int) -> None:
        """Pass one broker more on a connection. `address`: the peer's.

        Raises:
            BrokerBusyError: There are too many.
        """
        config = self._config()
        if of_connection >= config.connection_brokers_max:
            raise self._refused("brokersPerConnectionMax", address)
        if in_all >= config.brokers_max:
            raise self._refused("brokersMax", address)

    def check_topics(self, *, address: str, of_broker: int, more_routes: int, routes: int) -> None:
        """Pass a broker with so many topics, which adds so many to those of all brokers. `address`: the peer's.

        Raises:
            BrokerBusyError: There are too many.
        """
        config = self._config()
        if of_broker > config.broker_topics_max:
            raise self._refused("topicsPerBrokerMax", address)
        if more_routes > 0 and routes + more_routes > config.routes_max:
            raise self._refused("routesMax", address)

    def check_kv_bytes(self, *, address: str, size_bytes: int) -> None:
        """Pass a KV configuration of this size.

        Raises:
            BrokerBusyError: It is too large.
        """
        if size_bytes > self._config().kv_config_bytes_max:
            raise self._refused("kvConfigBytesMax", address)

    def _refused(self, limit: str, address: str) -> BrokerBusyError:
        self._limits.refused(limit, address=address, detail="request refused")
        return BrokerBusyError(f"the name server takes no more, {limit} is reached")
