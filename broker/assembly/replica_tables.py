"""Replica tables: makes what brings the tables of a slave up to date with its master's.

made     of the parts of a slave, whose own timers are not open
start    its first round begins at once
close    before the persister
"""

from collections.abc import Callable
from functools import partial

from thermocline.broker.assembly.parts import BrokerParts
from thermocline.broker.due import timer_config
from thermocline.broker.replicas import (
    DelayFollower,
    EnrolmentFollower,
    FollowedTable,
    GroupsFollower,
    MetadataFollower,
    OffsetsFollower,
    RequestModesFollower,
    TimerCheckpointFollower,
    TimerMetricsFollower,
    TopicsFollower,
    UsersFollower,
)
from thermocline.remoting.clients import RemotingClient
from thermocline.remoting.offsets import PhysicalOffset
from thermocline.store.late_placement import place_late
from thermocline.timers.followed_timers import FollowedTimers


def make_metadata_follower(
    parts: BrokerParts,
    *,
    enrolment: EnrolmentFollower | None = None,
    master_address: Callable[[], str | None] | None = None,
    followed_timers: FollowedTimers | None = None,
) -> MetadataFollower:
    """`enrolment`: of a slave with a cold tier.

    `master_address`: host:port, None while there is no master; without it as NameServers say.

    `followed_timers`: whose files follow the master's timers; None: made here. On the loop."""
    base, tables, registration = parts.base, parts.tables, parts.cluster.registration

    def log_end() -> PhysicalOffset:
        return base.store.commit_log.append_offset

    def registered_master() -> str | None:
        master = registration.master
        return None if master is None or master.address == base.advertised_address else master.address

    followed: list[FollowedTable] = [
        TopicsFollower(
            tables.topics,
            tables.static_topics,
            incarnations=base.store.incarnations,
            log_end=log_end,
            place_late=partial(place_late, base.store),
            queues=base.store.queues,
        ),
        OffsetsFollower(tables.offsets, tables.persister, log_end=log_end),
        DelayFollower(parts.due.delays, log_end=log_end),
        GroupsFollower(tables.groups),
        RequestModesFollower(tables.request_modes),
    ]
    if parts.access is not None:
        followed.append(UsersFollower(parts.access.store))
    if base.settings.broker.timer_wheel:
        config = timer_config(base.settings)
        timers = followed_timers or FollowedTimers(base.disk, config)
        followed += [
            TimerCheckpointFollower(timers, tables.persister, path=config.checkpoint_path, log_end=log_end),
            TimerMetricsFollower(timers, tables.persister, path=config.metrics_path),
        ]
    if enrolment is not None:
        followed.append(enrolment)
    client = RemotingClient(tls=registration.tls, credentials=registration.credentials)
    return MetadataFollower(
        followed, client=client, master_address=master_address or registered_master, clock=base.clock
    )
