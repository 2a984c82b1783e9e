"""Entry of the broker: settings from file, changes, environment and flags; then run until SIGTERM or Ctrl-C."""

import asyncio
import contextlib
import logging
import os
import random
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import msgspec

from thermocline.broker.assembly import ProxyAddresses, ProxyPlan, open_store
from thermocline.broker.follower import Source, find_source, make_read_only
from thermocline.broker.hot_process import HotProcess
from thermocline.broker.process import configure_logging, give_memory_back
from thermocline.broker.process import run as run_loop
from thermocline.broker.recovery import has_messages
from thermocline.broker.settings import (
    BrokerSettings,
    LoadedSettings,
    decode_changes,
    environment_source,
    file_source,
    load_settings,
    settings_path,
    warn_of_secrets,
)
from thermocline.broker.state_files import load_file
from thermocline.namesrv.name_server_config import NameServerConfig
from thermocline.namesrv.server import NameServer
from thermocline.remoting.clocks import wall_clock_ms
from thermocline.remoting.connections import FLAGS, stop_signals, unless_stopped
from thermocline.remoting.errors import (
    InvalidParameterError,
    InvalidRequestError,
    SettingError,
    UnavailableError,
)
from thermocline.remoting.settings import PropertySource
from thermocline.remoting.tls import read_tls_file
from thermocline.store.files import RealDisk, keep_private
from thermocline.tiered.objects import masked_url

logger = logging.getLogger(__name__)

PROCESS_NAME = "hot"
NOWHERE = ProxyAddresses("", "")
HELPERS_READY_INTERVAL_S = 0.05


class ReadyPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """How long a started broker waits for its parts before it reports that it is ready, in seconds.

    `helpers_timeout_s`: for its helper processes to serve; 0: it waits for neither them nor the store.
    `store_timeout_s`: for an object store that is reached over a network, from when the tier process is there.
    """

    helpers_timeout_s: float
    store_timeout_s: float


AT_ONCE = ReadyPolicy(helpers_timeout_s=0, store_timeout_s=0)
WITH_HELPERS = ReadyPolicy(helpers_timeout_s=15, store_timeout_s=1.5)
"""A store that does not answer, or slowly, holds up no hot tier: the cold one joins when its ledger is open."""
WITH_HISTORY = ReadyPolicy(helpers_timeout_s=300, store_timeout_s=300)


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerArguments:
    """The values of a command line. `flags`: settings by property name; they stand above everything else."""

    config_path: str | None = None
    flags: Mapping[str, str] = field(default_factory=dict)
    log_level: str = "INFO"
    single_process: bool = False
    recover_from: str | None = None
    """The cold tier from whose bucket an empty store directory is made first."""
    read_only_from: str | None = None
    """The cold tier of another broker, which is served and not written to."""
    proxy_flags: Mapping[str, str] = field(default_factory=dict)
    """The settings of a proxy in this broker's process group, by property name."""


class ReadyAddresses(msgspec.Struct, frozen=True, kw_only=True):
    """The addresses of a started broker. `name_server` is that of `run_with_name_server`, else the configured ones;
    `cold_url` has no keys in it; those of the proxy are empty where there is none."""

    name_server: str
    broker: str
    cold_url: str
    proxy: ProxyAddresses

    @property
    def proxy_fields(self) -> str:
        """The proxy's part of the line that a command prints."""
        grpc, remoting = self.proxy
        return (f" proxy={grpc}" if grpc else "") + (f" remoting={remoting}" if remoting else "")


OnReady = Callable[[ReadyAddresses], None]
OnRecovered = Callable[[str], None]
"""Receives the report of a recovery, line by line."""


def load_broker_settings(
    arguments: BrokerArguments, environment: Mapping[str, str], *, is_first: bool = True
) -> BrokerSettings:
    """Put the sources of settings together: file, changes made while running, environment, flags.

    The first time it warns of secrets that other users of the machine can read.

    The store's folder is, as RocketMQ's, ~/store when nothing says another.

    Raises:
        SettingError: A name is unknown, or a value cannot be one or promises what is not built; the error names the
            place.
        CorruptDataError: The file of changes cannot be read.
    """
    first: list[PropertySource] = []
    if environment.get("HOME"):
        default_root = str(Path(environment["HOME"]) / "store")
        first.append(PropertySource(place="default", values={"storePathRootDir": default_root}))
    if arguments.config_path is not None:
        try:
            first.append(file_source(arguments.config_path, Path(arguments.config_path).read_bytes()))
        except OSError as error:
            raise SettingError(
                f"the configuration file cannot be read: {error.strerror}", path=arguments.config_path
            ) from error
    last = [environment_source(environment), PropertySource(place=FLAGS, values=arguments.flags)]
    loaded = load_settings([*first, *last])
    first += _tls_file(loaded)
    changes = load_file(RealDisk(), settings_path(loaded.store))
    if changes is not None:
        place = settings_path(loaded.store)
        last.insert(0, PropertySource(place=place, values=decode_changes(changes).settings))
    loaded = load_settings([*first, *last])
    if is_first:
        warn_of_secrets([*first, *last], loaded)
    settings = _settings(loaded)
    if changes is not None:
        settings.take_over(changes)
    return settings


def run(arguments: BrokerArguments, *, on_ready: OnReady, on_recovered: OnRecovered = lambda _line: None) -> None:
    """Run a broker in this process (and its helpers beside it). Raises as HotProcess.start, load_broker_settings,
    recover_from_bucket when a bucket to recover from is named, and take_over on the store of a slave."""
    _prepare(arguments)
    settings = load_broker_settings(arguments, os.environ)
    _check_slave(settings, arguments)
    is_recovered = False
    if arguments.recover_from is not None:
        is_recovered = run_loop(_recover(settings, arguments.recover_from, on_recovered))
        give_memory_back()
        # Settings changed on the lost broker count here too.
        settings = load_broker_settings(arguments, os.environ, is_first=False)
    elif arguments.read_only_from is None:
        run_loop(_take_over(settings, on_recovered))
    source = None
    if arguments.read_only_from is not None:
        source = run_loop(_follow(settings, arguments.read_only_from))
        give_memory_back()
    # What such a broker is there for is in the bucket: it is ready when that is served.
    policy = WITH_HISTORY if is_recovered or source is not None else AT_ONCE
    run_loop(_run(settings, arguments, on_ready, policy=policy, source=source))


def run_with_name_server(arguments: BrokerArguments, name_server: NameServerConfig, *, on_ready: OnReady) -> None:
    """Run a NameServer and a broker that registers there, both in this process: for development.

    `on_ready` is called when index and cold tier serve too, or at the end of `WITH_HELPERS`: users ask at once for what
    only they know.
    """
    _prepare(arguments)
    run_loop(_run_both(arguments, name_server, on_ready))


def _check_slave(settings: BrokerSettings, arguments: BrokerArguments) -> None:
    """
    Raises:
        SettingError: A slave, or a broker under a controller, is to get its log, or its history, from
            elsewhere than its master.
    """
    if settings.broker.controller_mode and (arguments.recover_from or arguments.read_only_from):
        raise SettingError(
            "a broker under a controller gets its log, and its history, from its set: start it without --recover-from"
            " and --read-only-from",
            setting="enableControllerMode",
        )
    if settings.broker.is_slave and (arguments.recover_from or arguments.read_only_from):
        raise SettingError(
            "a slave gets its log from its master: start it without --recover-from and --read-only-from",
            setting="brokerRole",
        )


async def _recover(settings: BrokerSettings, url: str, on_recovered: OnRecovered) -> bool:
    """Make the store from the bucket; False when it came from there before."""
    from thermocline.broker.recovery.bucket_recovery import recover_from_bucket
    from thermocline.tiered.stores import open_object_store

    if settings.tier.cold_url != url:
        raise SettingError("the broker's cold tier is the one that it is recovered from", setting="coldUrl")
    bucket = await open_object_store(url)
    try:
        report = await recover_from_bucket(
            bucket,
            broker=settings.broker,
            store=settings.store,
            tier=settings.tier,
            disk=RealDisk(),
            clock=wall_clock_ms,
            random=random.Random(),
            make_id=lambda: uuid.uuid4().hex,
        )
    finally:
        await bucket.close()
    if report is None:
        return False
    for line in report.lines():
        on_recovered(line)
    return True


async def _take_over(settings: BrokerSettings, on_recovered: OnRecovered) -> None:
    """Have the store of a slave that is started as a master continue the ledger. A former master of a replica set is
    refused before it takes a send, if the bucket answers soon."""
    disk = RealDisk()
    if settings.broker.controller_mode:
        return  # with each change of the role
    has_file = disk.exists(settings.store.enrolment_path)
    if settings.broker.is_slave or not (has_file or (settings.tier.is_enabled and settings.broker.takes_slaves)):
        return
    from thermocline.broker.recovery.promotion import continue_ledger

    open_local = partial(open_store, settings, disk=disk, clock=wall_clock_ms)
    report = await continue_ledger(settings, disk=disk, clock=wall_clock_ms, open_local=open_local)
    give_memory_back()
    for line in report.lines() if report is not None else ():
        on_recovered(line)


async def _follow(settings: BrokerSettings, url: str) -> Source:
    """Find whose history is served, and make the settings those of a read-only broker."""
    from thermocline.tiered.stores import open_object_store

    if settings.tier.cold_url != url:
        raise SettingError("a read-only broker has no other cold tier than its source's", setting="coldUrl")
    if has_messages(RealDisk(), settings.store):
        raise InvalidRequestError(
            "the directory holds messages: a read-only broker needs one of its own", path=settings.store.root_path
        )
    bucket = await open_object_store(url)
    try:
        source = await find_source(bucket, settings.broker)
    finally:
        await bucket.close()
    make_read_only(settings, source)
    return source


async def _run_both(arguments: BrokerArguments, config: NameServerConfig, on_ready: OnReady) -> None:
    server = NameServer(config)
    port = await server.start()
    try:
        address = f"{config.listen_host}:{port}"
        environment = {name: value for name, value in os.environ.items() if name != "NAMESRV_ADDR"}
        with_address = BrokerArguments(
            config_path=arguments.config_path,
            flags={**arguments.flags, "namesrvAddr": address},
            log_level=arguments.log_level,
            single_process=arguments.single_process,
            proxy_flags=arguments.proxy_flags,
        )
        settings = load_broker_settings(with_address, environment)
        await _run(settings, with_address, on_ready, policy=WITH_HELPERS)
    finally:
        await server.close()


async def _run(
    settings: BrokerSettings,
    arguments: BrokerArguments,
    on_ready: OnReady,
    *,
    policy: ReadyPolicy,
    source: Source | None = None,
) -> None:
    """Run until a signal; `on_ready` is called once the broker serves and `policy` is met, or its time is over."""
    plan = _proxy_plan(settings, arguments, is_read_only=source is not None)
    with stop_signals() as stop:
        process = HotProcess(
            settings,
            environment=os.environ,
            log_level=arguments.log_level,
            single_process=arguments.single_process,
            source=source,
            proxy=plan,
        )
        address = await unless_stopped(process.start(), stop)
        if address is None:
            return
        process.refusal.add_done_callback(lambda _: stop.set())
        try:
            await _wait_complete(process, policy, stop)
            proxy_addresses = await _wait_proxy(process, stop)
            if process.refusal.done():
                raise InvalidRequestError(process.refusal.result())
            on_ready(
                ReadyAddresses(
                    name_server=settings.broker.name_server_addresses,
                    broker=address,
                    cold_url=masked_url(settings.tier.cold_url),
                    proxy=proxy_addresses,
                )
            )
            await stop.wait()
            if process.refusal.done():
                raise InvalidRequestError(process.refusal.result())
        finally:
            await process.close()


async def _wait_complete(process: HotProcess, policy: ReadyPolicy, stop: asyncio.Event) -> None:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + policy.helpers_timeout_s
    store_deadline: float | None = None
    while not process.is_complete and loop.time() < deadline and not stop.is_set():
        if process.is_waiting_for_store:
            if store_deadline is None:
                store_deadline = loop.time() + policy.store_timeout_s
            elif loop.time() >= store_deadline:
                logger.warning("ready without the cold tier, whose store has not answered all yet; it joins later")
                return
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), HELPERS_READY_INTERVAL_S)
    if policy.helpers_timeout_s and process.missing_parts and not stop.is_set():
        logger.warning(
            "ready without what its helper processes do not serve after %s s; it joins later missing=%s",
            policy.helpers_timeout_s,
            ",".join(process.missing_parts),
        )


async def _wait_proxy(process: HotProcess, stop: asyncio.Event) -> ProxyAddresses:
    """Wait until the proxy serves, unless there is none, or the broker is to stop; where it serves. One that takes
    longer than others joins later."""
    serves = asyncio.ensure_future(process.wait_proxy())
    stops = asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait({serves, stops}, return_when=asyncio.FIRST_COMPLETED)
        return serves.result() if serves.done() else NOWHERE
    except UnavailableError as error:
        logger.warning("ready without the proxy, which joins later: %s", error)
        return NOWHERE
    finally:
        for task in (serves, stops):
            task.cancel()


def _proxy_plan(settings: BrokerSettings, arguments: BrokerArguments, *, is_read_only: bool) -> ProxyPlan | None:
    """The proxy that runs beside this broker, if its settings ask for one.

    Raises:
        SettingError: A setting of the proxy cannot be used, or this broker can have none.
    """
    if not settings.broker.merged_proxy:
        names = [*arguments.proxy_flags, *({"mergedProxyConfigPath"} & arguments.flags.keys())]
        if names:
            raise SettingError("settings of a proxy count only with --proxy", names=" ".join(names))
        return None
    if is_read_only:
        raise SettingError("a read-only broker has no proxy: its consumers pull", setting="mergedProxyEnable")
    from thermocline.broker.proxy_process import merged_config

    config = merged_config(
        settings,
        config_path=settings.broker.merged_proxy_config,
        environment=os.environ,
        flags=arguments.proxy_flags,
    )
    return ProxyPlan(config=msgspec.msgpack.encode(config), drain_ms=config.shutdown_s * 1000)


def _prepare(arguments: BrokerArguments) -> None:
    if not __debug__:
        raise InvalidParameterError("assertions are part of this program: do not run it with -O")
    keep_private()
    configure_logging(arguments.log_level, process_name=PROCESS_NAME)


def _settings(loaded: LoadedSettings) -> BrokerSettings:
    if loaded.ignored:
        logger.warning("settings without effect here: %s", " ".join(loaded.ignored))
    return BrokerSettings(
        broker=loaded.broker,
        store=loaded.store,
        tier=loaded.tier,
        tls=loaded.tls,
        auth=loaded.auth,
        clock=wall_clock_ms,
    )


def _tls_file(loaded: LoadedSettings) -> list[PropertySource]:
    """The settings in tls.properties, if there is one."""
    path = loaded.tls.config_file
    values = read_tls_file(path)
    return [PropertySource(place=path, values=values)] if values else []
