"""Control: what a broker under a controller has beside the parts of a role, for as long as its process runs.

    made     its number is read from brokerIdentity, before the store is opened
    first    it begins as a slave without a master: reads are served, writes refused; without a number it is in no
             routes
    start    the controllers are asked, once requests are served: they give the number, and then the roles
    close    first of all at a stop: the controllers see the broker go, and another one is elected

Owner: the one event loop of the process.
"""

from __future__ import annotations

from random import Random

from thermocline.broker.assembly import Assignment
from thermocline.broker.controlled import (
    BrokerNames,
    ControlledBroker,
    ControlledProcessor,
    ControllerClient,
    ControlMachine,
    IdentityFiles,
)
from thermocline.broker.present_log import PresentLog
from thermocline.broker.settings import BrokerSettings
from thermocline.remoting.clients import RemotingClient
from thermocline.remoting.clocks import monotonic_ms, wall_clock_ms
from thermocline.remoting.offsets import PhysicalOffset
from thermocline.remoting.socket_address import format_address, parse_address
from thermocline.remoting.tls import ClientTls, outgoing_options
from thermocline.replication import Epochs, HandOver, ReplicaRole, RoleChanger
from thermocline.store.files import Disk

NO_NUMBER = -1
MASTER_ID = 0


class Control:
    """ReplicaFigures (controlled/controlled_processor.py). `start` once, `close` as often as wanted."""

    def __init__(self, settings: BrokerSettings, *, disk: Disk, log: PresentLog) -> None:
        """
        Raises:
            InvalidParameterError: The store is another broker's replica, or the names do not go with a controller.
            CorruptDataError: The identity cannot be read.
        """
        config, store = settings.broker, settings.store
        self._settings = settings
        self._log = log
        self._address = ""
        self._names = BrokerNames(cluster=config.cluster_name, broker_name=config.broker_name)
        self._files = IdentityFiles(disk, config.identity_path or f"{store.root_path}/brokerIdentity", self._names)
        self._driver: ControlledBroker | None = None

    @property
    def first_assignment(self) -> Assignment:
        """What the broker is until its first role comes."""
        number = self._files.broker_id
        role = ReplicaRole(
            broker_id=NO_NUMBER if number is None else number,
            master_epoch=0,
            sync_state_set_epoch=0,
            master_broker_id=None,
            master_address="",
            master_ha_address="",
        )
        return Assignment(role=role, sync_state_set=None)

    def start(self, changer: RoleChanger, *, address: str) -> None:
        """Begin to ask the controllers; returns at once. `address`: where this broker serves."""
        settings, self._address = self._settings, address
        outgoing = outgoing_options(settings.tls)
        tls = None if outgoing is None else ClientTls(outgoing)
        credentials = settings.auth.credentials()
        machine = ControlMachine(
            self._files,
            address=address,
            last_epoch=lambda: self._log.last_epoch,
            ask_interval_ms=lambda: settings.broker.replica_info_interval_ms,
            wall_clock=wall_clock_ms,
            random=Random(),
        )
        client = ControllerClient(
            addresses=lambda: settings.broker.controllers, clock=_steady_ms, tls=tls, credentials=credentials
        )
        self._driver = ControlledBroker(
            machine,
            client,
            names=self._names,
            address=address,
            changer=changer,
            replica=self._log,
            settings=lambda: settings.broker,
            brokers=RemotingClient(tls=tls, credentials=credentials),
            clock=_steady_ms,
            random=Random(),
        )
        self._driver.start()

    async def close(self) -> None:
        """Ask no more, and leave the controllers. Idempotent."""
        if self._driver is not None:
            await self._driver.close()

    def make_processor(self, *, address: str) -> ControlledProcessor:
        """Of one role's parts."""
        return ControlledProcessor(self, self._names, address=address, noticed=self._noticed)

    def _noticed(self, master_epoch: int) -> None:
        if self._driver is not None:
            self._driver.noticed(master_epoch)

    # -- ReplicaFigures ------------------------------------------------------------------------------------------------

    @property
    def broker_id(self) -> int:
        """0 while it is the master, otherwise the number that the controllers gave."""
        return MASTER_ID if self._log.sync_state_set is not None else self._files.broker_id or NO_NUMBER

    @property
    def epochs(self) -> Epochs:
        """Of the log."""
        return self._log.epochs

    @property
    def end_offset(self) -> PhysicalOffset:
        """Where the log ends."""
        return self._log.end_offset

    @property
    def hand_over(self) -> HandOver | None:
        """Of a master."""
        return self._log.hand_over

    @property
    def ha_address(self) -> str:
        """host:port where slaves connect."""
        return format_address(parse_address(self._address)[0], self._settings.broker.ha_port)


def _steady_ms() -> int:
    return int(monotonic_ms())
