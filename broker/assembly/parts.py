"""Parts: the families of one broker over an open store, made in the order in which they need each other.

    settings, store -> tables, due messages, pops (empty) -> their files -> system topics (durable)
                    -> what was popped -> delays -> transactions -> filters -> timers
                    -> users and policies, with access control -> cluster

It opens no socket and starts no task. On return everything that a start changes is durable, and the timers are open:
the caller closes them before the store (`BrokerParts.close_with`).
"""

import random
from collections.abc import Callable, Iterable
from contextlib import AsyncExitStack

import msgspec

from thermocline.broker.assembly.access import AccessParts
from thermocline.broker.assembly.base import Base
from thermocline.broker.assembly.cluster import Cluster
from thermocline.broker.assembly.connected_clients import ConnectedClients
from thermocline.broker.assembly.due import DueMessages
from thermocline.broker.assembly.messages import MessagePath
from thermocline.broker.assembly.pops import PopPath, Pops
from thermocline.broker.assembly.reads import Reads
from thermocline.broker.assembly.tables import Tables
from thermocline.broker.cold import ColdReads, KeyIndex
from thermocline.broker.pulls import LongPolling
from thermocline.broker.settings import BrokerSettings
from thermocline.remoting.clocks import steady_clock_ms, wall_clock_ms
from thermocline.remoting.connections import LimitCounts
from thermocline.store.files import Disk
from thermocline.store.message_store import MessageStore
from thermocline.store.queues import ConsumeQueue
from thermocline.timers.taken_back import TakenBackTimers


class BrokerParts(msgspec.Struct, frozen=True, kw_only=True):
    """One broker's. The assembly passes them on one by one; nothing below it takes this record."""

    base: Base
    tables: Tables
    reads: Reads
    cluster: Cluster
    due: DueMessages
    pops: Pops
    boot_time_ms: int
    access: AccessParts | None = None
    """None: access control is off."""

    def close_with(self, resources: AsyncExitStack) -> None:
        """Close all families when `resources` close: the clock is kept, links to other brokers end, topics close, the
        persister writes the requested files, the timers' files close. In this order, before the store."""
        if self.access is not None:
            self.access.close_with(resources)
        self.due.close_with(resources)
        self.tables.close_with(resources)
        self.cluster.close_with(resources)
        self.tables.keep_clock_with(resources)

    def make_message_path(
        self, *, key_index: KeyIndex, long_polling: LongPolling, near_bytes: int | None = None
    ) -> MessagePath:
        """See messages.py."""
        return MessagePath(
            self.base,
            self.tables,
            self.reads,
            self.cluster,
            self.due,
            key_index=key_index,
            long_polling=long_polling,
            near_bytes=near_bytes,
            access=self.access,
        )

    def make_pop_path(self, *, long_polling: LongPolling, near_bytes: int | None = None) -> PopPath:
        """See pops.py."""
        return PopPath(
            self.base,
            self.tables,
            self.reads,
            self.cluster,
            self.pops,
            long_polling=long_polling,
            near_bytes=near_bytes,
        )


async def make_parts(
    settings: BrokerSettings,
    store: MessageStore,
    *,
    disk: Disk,
    cold: ColdReads,
    store_host: tuple[str, int],
    arrived: Callable[[Iterable[ConsumeQueue]], None],
    clock: Callable[[], int] = wall_clock_ms,
    steady_clock: Callable[[], int] | None = None,
    seed: int | None = None,
    limits: LimitCounts | None = None,
    connected: ConnectedClients | None = None,
    master_epoch: int = 0,
    taken_back: TakenBackTimers | None = None,
) -> BrokerParts:
    """Make the parts of one broker over an open store.

    `store_host`: the advertised address. `arrived`: called with queues that grew by the broker's own messages.
    `steady_clock`: see Base; None: the machine's with its wall clock, else `clock`.
    `limits`: where refusals by limits are counted. `connected`: the clients that are connected already. `taken_back`:
    timed messages that a slave has delivered. `master_epoch`: see Cluster.

    Raises:
        CorruptDataError: A state file cannot be read, or the timers cannot be recovered.
        UnavailableError: A state file could not be written.
        OSError: The disk failed under the timers.
    """
    base = Base(
        settings,
        store,
        disk=disk,
        cold=cold,
        store_host=store_host,
        arrived=arrived,
        clock=clock,
        steady_clock=steady_clock or (steady_clock_ms if clock is wall_clock_ms else clock),
        random=random.Random(seed),
        limits=limits,
    )
    tables = Tables(base, connected)
    due = DueMessages(base, tables)
    pops = Pops(base, tables)
    for family in (tables, due, pops):
        family.load()
    await tables.boot()
    await pops.open()
    await due.open_delays()
    await due.open_transactions()
    reads = Reads(base, tables)
    await tables.prepare()
    due.open_timers(taken_back)
    access = AccessParts(base, tables.persister) if settings.auth.authentication_enabled else None
    if access is not None:
        await access.boot()
    return BrokerParts(
        base=base,
        tables=tables,
        reads=reads,
        cluster=Cluster(base, tables, reads, master_epoch=master_epoch),
        due=due,
        pops=pops,
        boot_time_ms=clock(),
        access=access,
    )
