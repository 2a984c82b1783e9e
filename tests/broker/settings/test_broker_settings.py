"""Settings: read from everywhere, shown and changed under RocketMQ's names, refused with clear errors.

Covers `broker/settings/broker_config.py`, `broker/settings/setting_sources.py`, `broker/settings/store_places.py`.
"""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.broker.control_broker import ControlBroker, control_broker
from tests.clock import Clock
from thermocline.broker.main import BrokerArguments, load_broker_settings
from thermocline.broker.settings.broker_config import BrokerConfig
from thermocline.broker.settings.broker_settings import (
    BLACK_LIST,
    SETTINGS,
    BrokerSettings,
    decode_changes,
    settings_path,
)
from thermocline.broker.settings.replica_settings import BrokerRole
from thermocline.broker.settings.setting_sources import (
    LoadedSettings,
    environment_source,
    file_source,
    load_settings,
)
from thermocline.remoting.clients.name_server_source import NameServerSource
from thermocline.remoting.errors import InvalidParameterError, SettingError
from thermocline.remoting.json_dialect import loads
from thermocline.remoting.settings import PropertySource
from thermocline.remoting.settings.config_text import parse_config_text
from thermocline.store.config.store_config import FlushDiskType

BROKER_CONF = b"""
# as Apache RocketMQ ships it
brokerClusterName = DefaultCluster
brokerName = broker-a
brokerId = 0
deleteWhen = 04;16
fileReservedTime = 48
brokerRole = ASYNC_MASTER
flushDiskType = SYNC_FLUSH
namesrvAddr = 127.0.0.1:9876;127.0.0.2:9876
storePathRootDir = /data/store
storePathCommitLog = /data/store/commitlog
diskMaxUsedSpaceRatio = 80
sendMessageThreadPoolNums = 16
autoCreateTopicEnable = false
"""


def load(*sources: PropertySource, root: str = "/data/store") -> LoadedSettings:
    return load_settings([PropertySource(place="test", values={"storePathRootDir": root}), *sources])


def flags(**values: str) -> PropertySource:
    return PropertySource(place="flags", values=values)


# -- sources -----------------------------------------------------------------------------------------------------------


def test_a_broker_conf_of_rocketmq_is_understood() -> None:
    loaded = load_settings([file_source("broker.conf", BROKER_CONF)])
    assert (loaded.broker.cluster_name, loaded.broker.broker_name) == ("DefaultCluster", "broker-a")
    assert loaded.broker.name_server_addresses == "127.0.0.1:9876;127.0.0.2:9876"
    assert not loaded.broker.auto_create_topic
    assert loaded.store.root_path == "/data/store"
    assert loaded.store.flush_disk_type is FlushDiskType.SYNC_FLUSH
    assert loaded.store.file_reserved_ms == 48 * 3_600_000
    assert loaded.store.delete_when_hours == (4, 16)
    assert loaded.store.disk_used_ratio_max == 0.8
    assert loaded.ignored == ("sendMessageThreadPoolNums",)


def test_the_store_is_in_the_home_folder_unless_something_says_otherwise(tmp_path: Path) -> None:
    environment = {"HOME": str(tmp_path)}
    assert load_broker_settings(BrokerArguments(), environment).store.root_path == str(tmp_path / "store")
    flagged = BrokerArguments(flags={"storePathRootDir": str(tmp_path / "elsewhere")})
    assert load_broker_settings(flagged, environment).store.root_path == str(tmp_path / "elsewhere")


def test_variables_of_a_name_server_are_passed_over() -> None:
    assert not environment_source({"THERMOCLINE_NAME_SERVER_LISTEN_PORT": "1", "THERMOCLINE_LOG_LEVEL": "INFO"}).values


def test_variables_of_a_proxy_beside_the_broker_are_no_settings_of_its_own() -> None:
    assert not environment_source({"THERMOCLINE_PROXY_GRPC_SERVER_PORT": "8081"}).values


def test_a_file_of_an_editor_that_marks_utf_8() -> None:
    """Its first name was unknown."""
    assert (
        load(file_source("broker.conf", "brokerName=broker-b\n".encode("utf-8-sig"))).broker.broker_name == "broker-b"
    )


def test_variables_of_controllers_are_no_settings_of_its_own() -> None:
    """A broker did not start in a shell whose `THERMOCLINE_CONTROLLERS` named the controllers for commands."""
    environment = {"THERMOCLINE_CONTROLLERS": "127.0.0.1:9878", "THERMOCLINE_CONTROLLER_DISK_CHECK": "1"}
    assert environment_source({**environment, "THERMOCLINE_CONTROLLER_ADDR": "127.0.0.1:9878"}).values == {
        "controllerAddr": "127.0.0.1:9878"
    }


def test_toml_has_tables_or_property_names() -> None:
    data = b"""
        brokerName = "broker-b"
        [broker]
        auto_create_topic = false
        [store]
        root_path = "/data/store"
        log_file_bytes = 67_108_864
        file_reserved_ms = 1000
        delete_when_hours = [1, 2]
        [tier]
        cold_url = "file:///data/cold"
    """
    loaded = load_settings([file_source("broker.toml", data)])
    assert loaded.broker.broker_name == "broker-b"
    assert not loaded.broker.auto_create_topic
    assert loaded.store.log_file_bytes == 1 << 26
    assert loaded.store.file_reserved_ms == 1_000
    assert loaded.store.delete_when_hours == (1, 2)
    assert loaded.tier.cold_url == "file:///data/cold"


def test_toml_reads_names_with_points_without_quotes_as_tables() -> None:
    data = b"""
        tls.enable = true
        tls.server.mode = "enforcing"
        rocketmq.namesrv.domain = "names:80"
        [store]
        root_path = "/data/store"
    """
    loaded = load_settings([file_source("broker.toml", data)])
    assert (loaded.tls.outgoing, loaded.tls.server_mode) == (True, "enforcing")
    assert loaded.broker.name_server_domain == "names:80"


def test_the_environment_stands_above_files_and_below_flags() -> None:
    environment = {
        "THERMOCLINE_BROKER_NAME": "from-environment",
        "NAMESRV_ADDR": "10.0.0.1:9876",
        "THERMOCLINE_LOG_LEVEL": "debug",
        "PATH": "/bin",
    }
    file = file_source("broker.conf", b"brokerName=from-file\nregionId=r")
    loaded = load(file, environment_source(environment))
    assert loaded.broker.broker_name == "from-environment"
    assert loaded.broker.name_server_addresses == "10.0.0.1:9876"
    assert loaded.broker.region_id == "r"
    loaded = load(file, environment_source(environment), flags(brokerName="from-flag"))
    assert loaded.broker.broker_name == "from-flag"


@pytest.mark.parametrize(
    "source",
    [
        file_source("broker.conf", b"rocketmq.namesrv.domain = names:80\nrocketmq.namesrv.domain.subgroup = blue\n"),
        environment_source({"ROCKETMQ_NAMESRV_DOMAIN": "names:80", "ROCKETMQ_NAMESRV_DOMAIN_SUBGROUP": "blue"}),
        flags(namesrvDomain="names:80", namesrvDomainSubgroup="blue"),
    ],
)
def test_the_address_server_of_rocketmqs_properties(source: PropertySource) -> None:
    loaded = load(flags(fetchNamesrvAddrByAddressServer="true"), source)
    assert loaded.broker.name_server_source == NameServerSource.parse(["http://names:80/rocketmq/blue"])


@pytest.mark.parametrize(
    ("name", "value", "error"),
    [
        ("listenPort", "99999", "listenPort must be from 0 to 65535"),
        ("listenPort", "many", "listenPort: a whole number is needed"),
        ("brokerNme", "x", "unknown setting brokerNme; did you mean brokerName"),
        ("fastListenPort", "1", "did you mean haListenPort or listenPort"),
        ("autoCreateTopicEnable", "yes", "true or false is needed"),
        ("flushDiskType", "SOMETIMES", "ASYNC_FLUSH or SYNC_FLUSH"),
        ("namesrvAddr", "127.0.0.1", "host:port"),
        ("brokerRole", "LEADER", "ASYNC_MASTER, SYNC_MASTER or SLAVE is needed"),
        ("aclEnable", "true", "not built"),
        ("enablePropertyFilter", "SQL92", "true or false is needed"),
        ("brokerId", "1", "only a slave"),
        ("serverChannelMaxIdleTimeSeconds", "long", "serverChannelMaxIdleTimeSeconds: a whole number is needed"),
        ("brokerName", "no spaces", "a name of letters"),
        ("bindAddress", "localhost", "an IP address"),
        ("brokerIP1", "broker.example", "an IP address is needed"),
        ("deleteWhen", "25", "hours of the day"),
        ("storePathCommitLog", "/elsewhere", "storePathCommitLog can only be commitlog in storePathRootDir"),
        ("storePathIndex", "/elsewhere/index", "storePathIndex can only be index in storePathRootDir"),
        ("messageDelayLevel", "1s 5x", "messageDelayLevel is a list of numbers with s, m, h or d"),
        ("messageDelayLevel", "", "messageDelayLevel needs at least one level"),
        ("coldSegmentBytes", "1", "coldSegmentBytes must be at least 65536"),
        ("coldUrl", "ftp://elsewhere", "an object store is"),
        ("coldUrl", "s3://bucket?storage_class=GLACIER", "restored first"),
        ("mappedFileSizeConsumeQueue", "21", "mappedFileSizeConsumeQueue must be a multiple of 20"),
        ("flushIntervalCommitLog", "0", "flushIntervalCommitLog must be at least 1"),
        ("fileReservedTime", "inf", "fileReservedTime: a number is needed"),
        ("diskSpaceWarningLevelRatio", "120", "diskSpaceWarningLevelRatio must be at most 100 percent"),
        ("slaveTimeout", str(1 << 70), "slaveTimeout: a whole number of 64 bits is needed"),
        # No request is larger, and no topic has a longer name: more would promise what is not kept.
        ("maxMessageSize", str(32 << 20), "maxMessageSize must be at most 16777216"),
        ("topicBytesMax", "200", "topicBytesMax must be at most 127"),
        ("fileReservedTime", "-1", "kept for a time"),
        ("diskSpaceWarningLevelRatio", "inf", "a number is needed"),
        ("messageTtlMs", "99999999999999999999", "messageTtlMs: a whole number of 64 bits"),
        ("deleteFileBatchMax", "0", "deleteFileBatchMax must be at least 1"),
        ("messageDelayLevel", " ", "messageDelayLevel needs at least one level"),
    ],
)
def test_an_invalid_setting_is_reported_with_its_name(name: str, value: str, error: str) -> None:
    with pytest.raises(SettingError, match=error):
        load(flags(**{name: value}))


@pytest.mark.parametrize(
    ("path", "data", "error"),
    [
        ("broker.toml", b"[stor]\nx = 1", r"unknown table \[stor\]"),
        ("broker.toml", b"[store\n", "cannot be read"),
        ("broker.conf", b"\xff\xfe", "cannot be read"),
    ],
)
def test_an_unreadable_file_is_reported_with_its_path(path: str, data: bytes, error: str) -> None:
    with pytest.raises(InvalidParameterError, match=error) as caught:
        file_source(path, data)
    assert path in str(caught.value)


def test_an_unknown_variable_of_ours_is_an_error() -> None:
    with pytest.raises(InvalidParameterError, match="did you mean"):
        load(environment_source({"THERMOCLINE_BROKER_NAM": "x"}))


@pytest.mark.parametrize(
    "line",
    [
        *(b"brokerPermission=9", b"maxMessageSize=0", b"coldFrameBytes=1", b"tlsHandshakesMax=0", b"slaveTimeout=x"),
        *(b"quotas=topic", b"coldUrl=ftp://x", b"authenticationWhitelist=x", b"initAuthenticationUser=x"),
    ],
)
def test_a_value_that_cannot_be_one_is_reported_with_the_place_where_it_stands(line: bytes) -> None:
    name = line.decode().partition("=")[0]
    with pytest.raises(SettingError, match=rf"{name}\b.* source=broker\.conf"):
        load(file_source("broker.conf", line))


def test_variables_of_controllers_and_of_commands_that_ask_them_are_passed_over() -> None:
    """One environment may serve a broker, a controller beside it, and the operator's shell."""
    environment = {
        "THERMOCLINE_CONTROLLERS": "10.0.0.1:9878",
        "THERMOCLINE_CONTROLLER_CONTROLLER_STORE_PATH": "/srv/controller",
        "THERMOCLINE_CONTROLLER_ADDR": "10.0.0.1:9878",
        "THERMOCLINE_CONTROLLER_HEART_BEAT_TIMEOUT_MILLS": "8000",
    }
    loaded = load(environment_source(environment))
    assert loaded.broker.controller_addresses == "10.0.0.1:9878"
    assert loaded.broker.controller_silence_ms == 8_000


def test_a_folder_is_needed() -> None:
    with pytest.raises(InvalidParameterError, match="a folder for the store is needed"):
        load_settings([])


def test_places_in_the_store_may_be_named_before_its_folder() -> None:
    text = b"""
        storePathCommitLog=/data/store/commitlog
        storePathConsumeQueue=/data/store/consumequeue
        storePathIndex=/data/store/index/
        storeCheckpoint=/data/store/checkpoint
        abortFile=/data/store/abort
        storePathRootDir=/data/store
        mapedFileSizeCommitLog=67108864
    """
    default = PropertySource(place="default", values={"storePathRootDir": "/home/someone/store"})
    loaded = load_settings([default, file_source("broker.conf", text)])
    assert (loaded.store.root_path, loaded.store.log_file_bytes, loaded.ignored) == ("/data/store", 1 << 26, ())


def test_a_setting_in_rocketmqs_unit_is_carried_by_ours() -> None:
    assert load(flags(serverChannelMaxIdleTimeSeconds="60")).broker.server_idle_ms == 60_000


def test_every_setting_is_shown_as_it_is_read() -> None:
    loaded = load_settings([file_source("broker.conf", BROKER_CONF)])
    for setting in SETTINGS.values():
        value = getattr(getattr(loaded, setting.section), setting.field)
        assert setting.parse(setting.show(value)) == value, setting.name


# -- a running broker --------------------------------------------------------------------------------------------------


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[ControlBroker]:
    async with control_broker(tmp_path) as broker:
        yield broker


async def shown(broker: ControlBroker) -> dict[str, str]:
    return parse_config_text(bytes((await broker.ask(26)).body).decode())


async def test_settings_are_shown_under_their_names(broker: ControlBroker) -> None:
    values = await shown(broker)
    assert values["brokerName"] == "broker-a"
    assert values["fileReservedTime"] == "72"
    assert values["deleteWhen"] == "04"
    assert values["diskMaxUsedSpaceRatio"] == "75"
    assert values["flushDiskType"] == "ASYNC_FLUSH"
    assert values["autoCreateTopicEnable"] == "true"
    assert values["brokerRole"] == "ASYNC_MASTER"
    assert values["useTLS"] == "false", "tools of RocketMQ ask for it; here tls.enable"


async def test_a_live_setting_counts_at_once(broker: ControlBroker) -> None:
    before = loads((await broker.ask(26)).ext_fields["version"].encode())  # type: ignore[index]
    answer = await broker.ask(25, body=b"fileReservedTime=48\nautoCreateTopicEnable=false\nnoSuchSetting=1\n")
    assert answer.code == 0
    assert not broker.parts.base.settings.broker.auto_create_topic
    assert broker.parts.base.settings.store.file_reserved_ms == 48 * 3_600_000
    after = loads((await broker.ask(26)).ext_fields["version"].encode())  # type: ignore[index]
    assert after["counter"] == before["counter"] + 1


async def test_another_setting_counts_from_the_next_start(tmp_path: Path) -> None:
    clock = Clock()
    async with control_broker(tmp_path, clock=clock) as broker:
        assert (await broker.ask(25, body=b"listenPort=10912\n")).code == 0
        assert broker.parts.base.settings.broker.listen_port == 10911
        assert (await shown(broker))["listenPort"] == "10912"
        data = broker.parts.base.disk.read(settings_path(broker.parts.base.store.config))
    changes = decode_changes(data)
    assert changes.settings == {"listenPort": "10912"}
    loaded = load(PropertySource(place="changed while running", values=changes.settings))
    assert loaded.broker.listen_port == 10912
    settings = BrokerSettings(broker=loaded.broker, store=loaded.store, tier=loaded.tier, clock=clock)
    settings.take_over(data)
    assert settings.version.current.counter == 1


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"storePathRootDir=/elsewhere\n", 16),
        (b"brokerConfigPath=/elsewhere\n", 16),
        (b"autoCreateTopicEnable=false\nregisterNameServerPeriod=soon\n", 29),
        (b"autoCreateTopicEnable=false\nregisterNameServerPeriod=0\n", 29),
        (b"autoCreateTopicEnable=false\naclEnable=true\n", 29),
        (b"autoCreateTopicEnable=false\nminInSyncReplicas=2\n", 29),
        (b"autoCreateTopicEnable=false\nserverChannelMaxIdleTimeSeconds=0\n", 29),
        (b"autoCreateTopicEnable=false\nstorePathCommitLog=/elsewhere\n", 29),
    ],
)
async def test_a_refused_change_changes_nothing(broker: ControlBroker, body: bytes, code: int) -> None:
    answer = await broker.ask(25, body=body)
    assert answer.code == code
    assert answer.remark
    assert broker.parts.base.settings.broker.auto_create_topic
    assert broker.parts.base.settings.version.current.counter == 0


async def test_changes_that_wait_are_checked_with_those_that_come_later(tmp_path: Path) -> None:
    """Each is possible by itself; with both, the broker would not start any more."""
    config = BrokerConfig(listen_host="127.0.0.1", broker_role=BrokerRole.SYNC_MASTER)
    async with control_broker(tmp_path, config=config) as broker:
        assert (await broker.ask(25, body=b"inSyncReplicas=2\n")).code == 0
        answer = await broker.ask(25, body=b"brokerRole=ASYNC_MASTER\n")
        assert answer.code == 29
        assert "SYNC_MASTER alone" in str(answer.remark)
        assert kept_changes(broker) == {"inSyncReplicas": "2"}
        assert (await broker.ask(25, body=b"brokerRole=ASYNC_MASTER\ninSyncReplicas=1\n")).code == 0


async def test_settings_that_go_together_may_be_changed_one_after_the_other(tmp_path: Path) -> None:
    config = BrokerConfig(listen_host="127.0.0.1", broker_role=BrokerRole.ASYNC_MASTER)
    async with control_broker(tmp_path, config=config) as broker:
        for body in (b"brokerRole=SYNC_MASTER\n", b"inSyncReplicas=2\n"):
            assert (await broker.ask(25, body=body)).code == 0
        changes = PropertySource(place="changed while running", values=kept_changes(broker))
        assert load(changes).broker.slaves_needed == 1


async def test_live_changes_have_to_go_with_what_is_in_force(broker: ControlBroker) -> None:
    """Two at the same time are checked one after the other."""
    answers = await asyncio.gather(
        broker.ask(25, body=b"diskMaxUsedSpaceRatio=84\n"), broker.ask(25, body=b"diskSpaceCleanForciblyRatio=80\n")
    )
    assert sorted(answer.code for answer in answers) == [0, 29]
    store = broker.parts.base.settings.store
    assert store.disk_used_ratio_max <= store.disk_used_ratio_force
    load(PropertySource(place="changed while running", values=kept_changes(broker)))


async def test_a_value_that_flags_stand_above_is_not_shown_as_the_one_in_force(tmp_path: Path) -> None:
    """The file of changes has what is set again once the flag is gone."""
    path = settings_path(load(root=str(tmp_path)).store)
    Path(path).parent.mkdir(parents=True)
    Path(path).write_bytes(b'{"settings":{"regionId":"changed","traceOn":"false"}}')
    settings = load_broker_settings(
        BrokerArguments(flags={"storePathRootDir": str(tmp_path), "regionId": "flag"}), environment={}
    )
    shown = parse_config_text(settings.text())
    assert (shown["regionId"], shown["traceOn"]) == ("flag", "false")
    assert decode_changes(settings.encode()).settings == {"regionId": "changed", "traceOn": "false"}


async def test_a_setting_of_several_lines_is_shown_on_one(tmp_path: Path) -> None:
    """A tool that sends back a value as it was shown would change it, and set all that its other lines name."""
    data = b'''
        [broker]
        quotas = """
            topic Orders sendBytes=1048576;
            address * sendRequests=1000
        """
    '''
    quotas = load(file_source("broker.toml", data)).broker.quotas
    async with control_broker(tmp_path, config=BrokerConfig(listen_host="127.0.0.1", quotas=quotas)) as broker:
        assert (await shown(broker))["quotas"] == "topic Orders sendBytes=1048576; address * sendRequests=1000"
        assert (await broker.ask(25, body=b"regionId=one\\ntraceOn=false\nzoneName=a\\r\\n \\n b\n")).code == 0
        values = await shown(broker)
        assert (values["regionId"], values["zoneName"], values["traceOn"]) == ("one traceOn=false", "a b", "true")


async def test_a_black_list_is_added_to_the_names_that_are_never_changed_from_afar(tmp_path: Path) -> None:
    config = BrokerConfig(listen_host="127.0.0.1", config_black_list="autoCreateTopicEnable; configBlackList")
    async with control_broker(tmp_path, config=config) as broker:
        for name in ("autoCreateTopicEnable", "configBlackList", "storePathRootDir", "rocketmqHome"):
            assert (await broker.ask(25, body=f"{name}=false\n".encode())).code == 16
        assert (await broker.ask(25, body=b"traceOn=false\n")).code == 0
        assert broker.parts.base.settings.broker.auto_create_topic


async def test_fixed_settings_are_shown_and_accepted_unchanged(broker: ControlBroker) -> None:
    values = await shown(broker)
    assert (values["inSyncReplicas"], values["metricsExporterType"], values["aclEnable"]) == ("1", "DISABLE", "false")
    every_one = "".join(f"{name}={text}\n" for name, text in values.items() if name not in NEVER_FROM_AFAR)
    assert (await broker.ask(25, body=every_one.encode())).code == 0


NEVER_FROM_AFAR = BLACK_LIST | BrokerConfig().black_list
KEYS = "access_key=AKIDSECRET&secret_key=TOPSECRET&session_token=TOKENSECRET"
WITH_KEYS = f"s3://history/p?endpoint=https://host&{KEYS}"
MASKED = "s3://history/p?endpoint=https://host&access_key=***&secret_key=***&session_token=***"


def kept_changes(broker: ControlBroker) -> dict[str, str]:
    return decode_changes(broker.parts.base.disk.read(settings_path(broker.parts.base.store.config))).settings


async def test_keys_are_never_shown_and_survive_an_update(broker: ControlBroker) -> None:
    assert (await broker.ask(25, body=f"coldUrl={WITH_KEYS}\n".encode())).code == 0
    for _ in range(2):
        text = bytes((await broker.ask(26)).body)
        assert b"SECRET" not in text
        assert parse_config_text(text.decode())["coldUrl"] == MASKED
        # What a tool does that changes one setting of a form and sends all of it.
        assert (await broker.ask(25, body=f"coldUrl={MASKED}\nfileReservedTime=48\n".encode())).code == 0
        assert kept_changes(broker) == {"coldUrl": WITH_KEYS, "fileReservedTime": "48"}


async def test_a_masked_url_that_was_changed_is_refused(broker: ControlBroker) -> None:
    assert (await broker.ask(25, body=f"coldUrl={WITH_KEYS}\n".encode())).code == 0
    changed = MASKED.replace("https://host", "https://other")
    answer = await broker.ask(25, body=f"coldUrl={changed}\nfileReservedTime=48\n".encode())
    assert answer.code == 29
    assert "give the whole URL" in str(answer.remark)
    assert "SECRET" not in str(answer.remark)
    assert kept_changes(broker) == {"coldUrl": WITH_KEYS}
    assert broker.parts.base.settings.store.file_reserved_ms == 72 * 3_600_000


def test_defaults_are_rocketmqs() -> None:
    config = BrokerConfig()
    assert (config.listen_port, config.default_topic_queues, config.offset_flush_interval_ms) == (10911, 8, 5_000)
