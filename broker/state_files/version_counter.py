"""Version counter: the DataVersion of one table, which rises with each change.

NameServers, replicas and tools compare versions for equality: a table whose version stands still has not changed. So a
change bumps the version in the same step of the event loop, before the table is written or sent anywhere.
Source: remoting/protocol/DataVersion.java, Apache RocketMQ 5.3.
"""

from collections.abc import Callable

from thermocline.remoting.bodies import DataVersion


class VersionCounter:
    """The version of one table. `current` is replaced, never changed in place."""

    __slots__ = ("_clock", "current")

    def __init__(self, clock: Callable[[], int], current: DataVersion | None = None) -> None:
        self._clock = clock
        self.current = current if current is not None else DataVersion(state_version=0, timestamp=clock(), counter=0)

    def bump(self) -> DataVersion:
        """The table has changed."""
        self.current = DataVersion(
            state_version=self.current.state_version, timestamp=self._clock(), counter=self.current.counter + 1
        )
        return self.current

    def text(self) -> bytes:
        """The version as JSON, keys in Apache RocketMQ's order."""
        version = self.current
        return b'{"counter":%d,"stateVersion":%d,"timestamp":%d}' % (
            version.counter,
            version.state_version,
            version.timestamp,
        )
