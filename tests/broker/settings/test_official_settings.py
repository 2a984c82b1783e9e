"""Every setting of RocketMQ's daemons has its treatment, and none is accepted that promises what is not built.

Covers `remoting/settings/official_network_settings.py`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Mapping
from dataclasses import fields
from pathlib import Path

import pytest

from tests.broker.control_broker import ControlBroker, control_broker
from tests.broker.settings.official_classes import check_table, official_settings
from thermocline.broker.settings.broker_settings import SETTINGS
from thermocline.broker.settings.official_settings import BROKER_CLASSES, BROKER_SETTINGS, FIXED
from thermocline.broker.settings.setting_sources import (
    environment_source,
    environment_variable,
    file_source,
    load_settings,
)
from thermocline.broker.settings.store_places import PLACES_IN_STORE
from thermocline.controller.controller_config import OWN_FIELDS
from thermocline.namesrv.name_server_config import NameServerConfig
from thermocline.namesrv.name_server_settings import environment_properties, load_name_server_config
from thermocline.namesrv.name_server_settings import environment_variable as name_server_variable
from thermocline.namesrv.official_settings import CONTROLLER_SETTINGS, NAME_SERVER_CLASSES, NAME_SERVER_SETTINGS
from thermocline.remoting.errors import SettingError
from thermocline.remoting.settings import PropertySource, TlsConfig
from thermocline.remoting.settings.official_network_settings import TLS_PROPERTIES
from thermocline.remoting.settings.official_settings import MACHINE, OfficialSetting, Treatment

CLASSES: Mapping[str, tuple[OfficialSetting, ...]] = {**BROKER_CLASSES, **NAME_SERVER_CLASSES}
REFUSED = sorted(name for name, each in BROKER_SETTINGS.items() if each.treatment is Treatment.REFUSED)
NAME_SERVER_REFUSED = sorted(name for name, each in NAME_SERVER_SETTINGS.items() if each.treatment is Treatment.REFUSED)

# What an operator writes who wants it; any other refused setting is tried with `another_value`.
WANTED = {
    "minInSyncReplicas": ("2", "0"),
    "metricsExporterType": ("PROM", "OTLP_GRPC", "LOG", "1", "3"),
    "storeType": ("defaultRocksDB",),
}


def another_value(setting: OfficialSetting) -> str:
    """A value of the kind of the default that is none of the harmless ones."""
    if setting.default in ("true", "false"):
        return "false" if setting.default == "true" else "true"
    return str(int(setting.default) + 1) if setting.default.isdecimal() else "something"


def root(*sources: PropertySource) -> list[PropertySource]:
    return [PropertySource(place="test", values={"storePathRootDir": "/data/store"}), *sources]


@pytest.mark.java
def test_names_and_defaults_are_those_of_the_official_classes(
    jdk_home: Path, official_jars: Path, tmp_path: Path
) -> None:
    """A setting that a release adds, takes away or gives another default fails here."""
    official = official_settings(jdk_home, official_jars, tmp_path, CLASSES)
    for class_name, table in CLASSES.items():
        check_table(class_name, table, official[class_name])


@pytest.mark.parametrize("class_name", sorted(CLASSES))
def test_a_class_names_each_setting_once(class_name: str) -> None:
    counts = Counter(setting.name for setting in CLASSES[class_name])
    assert [name for name, count in counts.items() if count > 1] == []


def test_each_setting_says_why() -> None:
    for setting in (*BROKER_SETTINGS.values(), *NAME_SERVER_SETTINGS.values()):
        if setting.treatment is not Treatment.HONOURED:
            assert setting.note, setting.name
        if setting.treatment is Treatment.REFUSED:
            assert setting.accepts(setting.default), f"{setting.name}: RocketMQ's own default is refused"


def test_each_honoured_official_setting_is_a_setting_of_ours() -> None:
    honoured = {each.carrier or name for name, each in BROKER_SETTINGS.items() if each.treatment is Treatment.HONOURED}
    assert honoured - SETTINGS.keys() == PLACES_IN_STORE.keys()
    assert SETTINGS.keys() & BROKER_SETTINGS.keys() <= honoured
    of_name_server = NameServerConfig().shown().keys()
    honoured = {
        each.carrier or name for name, each in NAME_SERVER_SETTINGS.items() if each.treatment is Treatment.HONOURED
    }
    of_controller = {item.metadata["name"] for item in OWN_FIELDS}
    assert honoured <= of_name_server | of_controller
    assert of_name_server & NAME_SERVER_SETTINGS.keys() <= honoured
    honoured = {
        each.carrier or name for name, each in CONTROLLER_SETTINGS.items() if each.treatment is Treatment.HONOURED
    }
    of_controller |= {item.metadata["name"] for item in fields(TlsConfig)}
    assert honoured <= of_controller
    assert of_controller & CONTROLLER_SETTINGS.keys() <= honoured


def test_settings_shown_as_fixed_are_accepted() -> None:
    loaded = load_settings(root(PropertySource(place="test", values=FIXED)))
    assert loaded.ignored == ()


def test_every_official_default_starts_a_broker_and_a_name_server() -> None:
    """A configuration file with all of RocketMQ's settings at their defaults, as its tools print it."""
    defaults = {
        name: each.default
        for name, each in BROKER_SETTINGS.items()
        if each.default not in (MACHINE, "") and name != "listenPort"
    }
    loaded = load_settings(root(PropertySource(place="broker.conf", values=defaults)))
    without_effect = {name for name, each in BROKER_SETTINGS.items() if each.treatment is Treatment.WITHOUT_EFFECT}
    assert set(loaded.ignored) == without_effect & defaults.keys()
    defaults = {name: each.default for name, each in NAME_SERVER_SETTINGS.items() if each.default not in (MACHINE, "")}
    load_name_server_config([PropertySource(place="namesrv.conf", values=defaults)])


@pytest.mark.parametrize("name", REFUSED)
def test_a_broker_refuses_settings_of_features_that_are_not_built(name: str) -> None:
    """From a file, from the environment and from a flag: one sentence with name, value, promise and what to do."""
    setting = BROKER_SETTINGS[name]
    for value in WANTED.get(name, (another_value(setting),)):
        sources = [
            file_source("broker.conf", f"{name} = {value}\n".encode()),
            file_source("broker.toml", f'"{name}" = "{value}"\n'.encode()),
            PropertySource(place="flag", values={name: value}),
        ]
        if "." not in name:
            sources.append(environment_source({environment_variable(name): value}))
        for source in sources:
            with pytest.raises(SettingError) as caught:
                load_settings(root(source))
            shown = "***" if setting.is_secret else value
            assert caught.value.message.startswith(f"{name}={shown} is refused: it would promise {setting.note}, ")
            assert f" {setting.name}" in caught.value.message.rpartition("not built; ")[2]
            assert caught.value.context["source"] == source.place


@pytest.mark.parametrize("name", NAME_SERVER_REFUSED)
def test_a_name_server_refuses_settings_of_features_that_are_not_built(name: str) -> None:
    setting = NAME_SERVER_SETTINGS[name]
    value = WANTED.get(name, (another_value(setting),))[0]
    sources = [PropertySource(place="namesrv.conf", values={name: value})]
    if "." not in name:
        sources.append(environment_properties({name_server_variable(name): value}))
    for source in sources:
        with pytest.raises(SettingError, match=f"^{name}=.* is refused: it would promise "):
            load_name_server_config([source])
    with pytest.raises(SettingError, match=f"^{name}=.* is refused"):
        NameServerConfig().updated({name: value})


def test_secrets_are_not_shown() -> None:
    for name in ("initAuthenticationUser", "objectStoreSecretKey"):
        with pytest.raises(SettingError) as caught:
            load_settings(root(PropertySource(place="flag", values={name: "hunter2"})))
        assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("brokerRole", " async_master "),
        ("aclEnable", "FALSE"),
        ("inSyncReplicas", "01"),
        ("metricsExporterType", "0"),
        ("tls.server.mode", "disabled"),
        ("messageStorePlugIn", ""),
    ],
)
def test_the_true_value_is_accepted_however_it_is_written(name: str, value: str) -> None:
    load_settings(root(PropertySource(place="flag", values={name: value})))


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[ControlBroker]:
    async with control_broker(tmp_path) as broker:
        yield broker


async def test_a_running_broker_refuses_the_same(broker: ControlBroker) -> None:
    for name in REFUSED:
        value = WANTED.get(name, (another_value(BROKER_SETTINGS[name]),))[0]
        answer = await broker.ask(25, body=f"autoCreateTopicEnable=false\n{name}={value}\n".encode())
        assert answer.code == 29, name
        assert f"{name}=" in str(answer.remark)
        assert "is refused: it would promise" in str(answer.remark)
    assert broker.parts.base.settings.broker.auto_create_topic
    assert broker.parts.base.settings.version.current.counter == 0


def test_tls_names_are_known_to_both_daemons() -> None:
    names = {setting.name for setting in TLS_PROPERTIES}
    assert names <= BROKER_SETTINGS.keys()
    assert names <= NAME_SERVER_SETTINGS.keys()
