"""State: state in memory that the tier process saves in the bucket, for a recovery of the broker.

made     the log's reservation from its file; the link that answers the tier process
close    the link stops answering, before tables and persister close
"""

from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack

from thermocline.broker.assembly.parts import BrokerParts
from thermocline.broker.helpers import HelperHub
from thermocline.broker.state import LogReservation, StateLink, log_reservation, reserve_bytes
from thermocline.broker.state_files import load_file


class SavedState:
    """See the module's header. On the loop."""

    def __init__(
        self,
        parts: BrokerParts,
        hub: HelperHub,
        *,
        has_own_tier: bool,
        save_files: Callable[[], Awaitable[None]],
        resources: AsyncExitStack,
    ) -> None:
        """`has_own_tier`: there is a cold tier, and it is no other broker's. `save_files`: see Housekeeping.save.
        Closes with `resources`.

        Raises:
            CorruptDataError: The reservation's file cannot be read.
        """
        base, persister = parts.base, parts.tables.persister
        config = base.store.config
        self.reservation = LogReservation(
            base.store.commit_log,
            reserve_bytes=reserve_bytes(base.disk, config, configured=base.settings.tier.reserve_bytes),
            request_save=lambda: persister.request(log_reservation.FILE_NAME),
        )
        persister.register(log_reservation.FILE_NAME, config.log_ceiling_path, self.reservation.encode)
        if has_own_tier:
            self.reservation.load(load_file(base.disk, config.log_ceiling_path))
        self.link = StateLink(
            hub, in_flight=parts.pops.store.in_flight, reservation=self.reservation, save_files=save_files
        )
        resources.push_async_callback(self.link.close)
