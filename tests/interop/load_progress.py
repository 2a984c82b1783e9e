"""How far the mixed load is: which acknowledged messages a group has not received yet. Reads journals as they grow."""

from __future__ import annotations

import time

from tests.interop.load_cluster import LoadCluster
from tests.interop.load_journal import JournalTail, Received, Sent
from tests.interop.load_mix import GroupPlan, MessageName

EXAMPLES_MAX = 10


class LoadProgress:
    """All journals, read on and on."""

    def __init__(self, cluster: LoadCluster) -> None:
        self._groups = cluster.groups
        self._sent = {plan.name: JournalTail(cluster.journal_of_producer(plan.name)) for plan in cluster.plans}
        self._received = {
            group.name: {part: JournalTail(cluster.journal_of_member(group, part)) for part in cluster.parts}
            for group in self._groups
        }
        self.sent: dict[str, dict[int, Sent]] = {plan.name: {} for plan in cluster.plans}
        """By producer and number. What has no outcome yet is not there."""
        self.received: dict[str, list[tuple[str, Received]]] = {group.name: [] for group in self._groups}
        """By group, with the member that received it; one member's in its own order."""
        self._taken: dict[str, set[str]] = {group.name: set() for group in self._groups}
        self._grown_s = time.monotonic()

    def read(self) -> None:
        """Read on."""
        for producer, tail in self._sent.items():
            for sent in map(Sent.read, tail.new_lines()):
                assert sent.number not in self.sent[producer], f"{producer} has two outcomes of {sent.number}"
                self.sent[producer][sent.number] = sent
        for group, members in self._received.items():
            for part, tail in members.items():
                for received in map(Received.read, tail.new_lines()):
                    self.received[group].append((part, received))
                    if received.is_taken:
                        self._taken[group].add(received.name)
                    self._grown_s = time.monotonic()

    @property
    def quiet_s(self) -> float:
        """For how long no consumer has received anything, as far as `read` has seen."""
        return time.monotonic() - self._grown_s

    def drain(self, *, timeout_s: float, quiet_s: float) -> None:
        """Return when every group has taken all that it wants, and nothing more has come for `quiet_s`; else fail.

        To be called when no producer sends any more.
        """
        deadline = time.monotonic() + timeout_s
        self.read()
        missing = {group.name: self._wanted(group) for group in self._groups}
        while True:
            for group, names in missing.items():
                names -= self._taken[group]
            if not any(missing.values()) and self.quiet_s >= quiet_s:
                return
            if time.monotonic() > deadline:
                lost = {group: (len(names), sorted(names)[:EXAMPLES_MAX]) for group, names in missing.items() if names}
                raise AssertionError(f"not received within {timeout_s:.0f} s after the last send: {lost}")
            time.sleep(0.5)
            self.read()

    def _wanted(self, group: GroupPlan) -> set[str]:
        """What the group shall get of that which the broker has taken."""
        names = (
            f"{producer}-{sent.number}"
            for producer, outcomes in self.sent.items()
            for sent in outcomes.values()
            if sent.is_acknowledged
        )
        return {
            name for name in names if (message := MessageName.read(name)).is_for(group) and not message.is_rolled_back
        }
