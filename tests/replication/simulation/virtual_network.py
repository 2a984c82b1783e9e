"""Virtual network: connections between machines, which delay, split, hold back and break.

    network.connect(slave, master, ...)    both ends get a call when it is open
    connection.send(name, data)            bytes arrive in order, in pieces of any length, later
    connection.close(name)                 so does the other end, if the network lets that pass

A direction between two machines may be cut: bytes wait, as TCP sends them again, and pass when it is whole again. A
process that ends closes its connections; a machine that loses its power does not, and its peers hold a half-open
connection until they send something and the machine, up again, refuses it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Protocol

from tests.replication.simulation.virtual_world import Machine, World

RETRY_MS = 40
"""A direction that is cut is tried again after so long."""


class End(Protocol):
    """One end of a connection, as its process sees it."""

    def received(self, data: bytes) -> None:
        """Bytes have come."""
        ...

    def closed(self, reason: str) -> None:
        """The connection is over. Called once, not by the end's own `close`."""
        ...


class Connection:
    """Made by Network.connect. `names`: of the machine that connected, then the one that accepted."""

    def __init__(self, network: Network, number: int, machines: tuple[Machine, Machine]) -> None:
        self.number = number
        self._network = network
        self._machines = {machine.name: machine for machine in machines}
        self._other = {machines[0].name: machines[1].name, machines[1].name: machines[0].name}
        self.ends: dict[str, End] = {}
        self._on_way: dict[str, bytearray] = {name: bytearray() for name in self._machines}
        """By sender."""
        self._is_under_way: set[str] = set()
        self._is_broken = False

    def waiting_bytes(self, sender: str) -> int:
        """Bytes that have not arrived."""
        return len(self._on_way[sender])

    def send(self, sender: str, data: bytes) -> None:
        """Send; nothing happens once this end is closed."""
        if sender in self.ends:
            self._on_way[sender] += data
            self._schedule(sender)

    def close(self, sender: str) -> None:
        """Close this end. Idempotent."""
        if self.ends.pop(sender, None) is not None:
            self._schedule(sender)

    def vanish(self, sender: str) -> None:
        """This end is gone with its machine; the other one gets no notice."""
        self.ends.pop(sender, None)
        self._on_way[sender].clear()

    def break_silently(self) -> None:
        """Nothing arrives any more, and no end gets a notice: something on the way has forgotten the connection."""
        self._is_broken = True

    def _schedule(self, sender: str) -> None:
        if sender not in self._is_under_way:
            self._is_under_way.add(sender)
            self._network.world.later(self._network.delay_ms(sender, self._other[sender]), lambda: self._arrive(sender))

    def _arrive(self, sender: str) -> None:
        if self._is_broken:
            return
        network, receiver = self._network, self._other[sender]
        machine = self._machines[receiver]
        if not network.passes(sender, receiver) or machine.is_frozen or not machine.is_on:
            network.world.later(RETRY_MS, lambda: self._arrive(sender))
            return
        self._is_under_way.discard(sender)
        if receiver not in self.ends:
            self._refuse(sender)
            return
        waiting = self._on_way[sender]
        if waiting:
            count = len(waiting) if network.world.chance(0.6) else network.world.random.randint(1, len(waiting))
            data = bytes(waiting[:count])
            del waiting[:count]
            self.ends[receiver].received(data)
        if waiting or (sender not in self.ends and receiver in self.ends):
            if waiting:
                self._schedule(sender)
            else:
                self.ends.pop(receiver).closed("the other end has closed the connection")

    def _refuse(self, sender: str) -> None:
        """The receiver has no such connection any more."""
        self._on_way[sender].clear()
        end = self.ends.pop(sender, None)
        if end is not None:
            end.closed("the other end does not have this connection")


class Network:
    """All connections of a run, and what is cut."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._cut: set[tuple[str, str]] = set()
        self._slow: dict[str, int] = {}
        self._numbers = itertools.count(1)

    def delay_ms(self, sender: str, receiver: str) -> int:
        """How long the next piece takes."""
        random = self.world.random
        slow_ms = max(self._slow.get(sender, 0), self._slow.get(receiver, 0))
        return random.randrange(1, 4) + (random.randrange(slow_ms) if slow_ms else 0)

    def passes(self, sender: str, receiver: str) -> bool:
        """Whether bytes from one machine arrive at another."""
        return (sender, receiver) not in self._cut

    def both_pass(self, one: str, other: str) -> bool:
        """The same in both directions."""
        return self.passes(one, other) and self.passes(other, one)

    def cut(self, sender: str, receiver: str) -> None:
        """Nothing passes in this direction from now on."""
        self._cut.add((sender, receiver))

    def slow_down(self, name: str, delay_ms: int) -> None:
        """What this machine sends and gets takes so long more."""
        self._slow[name] = delay_ms

    def heal(self) -> None:
        """Everything passes, fast."""
        self._cut.clear()
        self._slow.clear()

    def connect(
        self,
        client: Machine,
        server: Machine,
        accept: Callable[[Connection], End | None],
        opened: Callable[[Connection | None], End | None],
    ) -> None:
        """Connect. `accept`: makes the server's end, None refuses; called when the request arrives. `opened`: makes
        the client's end; it gets None if there is no connection."""
        client_life = client.life

        def arrive() -> None:
            if client.life != client_life:
                return
            if server.is_frozen or not server.is_on or not self.both_pass(client.name, server.name):
                opened(None)
                return
            connection = Connection(self, next(self._numbers), (client, server))
            end = accept(connection)
            if end is None:
                opened(None)
                return
            connection.ends[server.name] = end
            mine = opened(connection)
            if mine is not None:
                connection.ends[client.name] = mine

        self.world.later(self.delay_ms(client.name, server.name), arrive, machine=client)
