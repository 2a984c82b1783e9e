"""docs/rocketmq-settings.md: every setting of RocketMQ and what it means here, made from the tables in code.

    python -m tooling.settings_page     writes the page

The tables are broker/settings/official_settings/, namesrv/official_settings.py, proxy/settings/official_settings.py and
remoting/settings/official_network_settings.py. A test fails when the page is not what they give.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from thermocline.broker.settings.official_settings import ADDRESS_SERVER, BROKER_CLASSES, OLDER_NAMES
from thermocline.namesrv.official_settings import NAME_SERVER_CLASSES
from thermocline.proxy.settings import PROXY_AUTH_CONFIG, PROXY_CONFIG
from thermocline.remoting.settings import MACHINE, TLS_PROPERTIES, OfficialSetting, Treatment

PAGE = Path(__file__).resolve().parent.parent / "docs" / "rocketmq-settings.md"

_INTRODUCTION = """\
# Settings of RocketMQ

<!-- Made by `python -m tooling.settings_page` from the tables in code: change those, not this page. -->

What each setting of Apache RocketMQ 5.5.0 means to Thermocline when it is in a `broker.conf`, `namesrv.conf`,
`controller.conf` or `rmq-proxy.json`, in a variable, on the command line (`--set`), or in a change while running
(`thermocline broker config set`, `mqadmin updateBrokerConfig`, `updateNamesrvConfig`, `updateControllerConfig`):

- **refused**: a value other than the accepted ones would promise what is not built. The daemon does not start (exit
  status 2) and says why in one sentence; a change while running is answered with INVALID_PARAMETER and changes nothing.
- **without effect**: accepted, and harmless whatever the value is. The names are listed in one warning at start.
- **honoured**: a setting of Thermocline carries it, mostly under the same name: see the settings
  [of a broker](configuration.md#settings-of-a-broker), [of a NameServer](configuration.md#settings-of-a-nameserver),
  [of a controller](controller.md#settings) and [of a proxy](proxy.md#settings).

The default is RocketMQ's; *machine*: it depends on the machine.
"""


def page_text() -> str:
    """The whole page."""
    lines = [_INTRODUCTION, "## Settings of RocketMQ's broker\n"]
    for class_name, table in BROKER_CLASSES.items():
        lines += _class_section(class_name, table)
    lines += _section("Address server", "Read by the start-up class `BrokerStartup` itself.", ADDRESS_SERVER)
    lines += _section("Older names", "Of older releases, and of guides; release 5.5.0 does not read them.", OLDER_NAMES)
    lines.append("## Settings of RocketMQ's NameServer and controller\n")
    for class_name, table in NAME_SERVER_CLASSES.items():
        if class_name not in BROKER_CLASSES:
            lines += _class_section(class_name, table)
    shared = " and ".join(f"`{_short(name)}`" for name in NAME_SERVER_CLASSES if name in BROKER_CLASSES)
    lines.append(f"Both read {shared} too: see above; a controller listens at its port of `controllerDLegerPeers`.\n")
    lines.append("## Settings of RocketMQ's proxy\n")
    lines += _section(
        "ProxyConfig",
        "Class `org.apache.rocketmq.proxy.config.ProxyConfig`.",
        PROXY_CONFIG,
    )
    lines += _section(
        "AuthConfig of a proxy",
        "Class `org.apache.rocketmq.auth.config.AuthConfig`, which the same file sets.",
        PROXY_AUTH_CONFIG,
    )
    lines.append("## Settings of broker and NameServer\n")
    lines += _section("TLS", "System properties of the JVM, or lines of `tls.properties`.", TLS_PROPERTIES)
    return "\n".join(lines).rstrip() + "\n"


def _class_section(class_name: str, table: Iterable[OfficialSetting]) -> Iterator[str]:
    yield from _section(_short(class_name), f"Class `{class_name}`.", table)


def _section(title: str, text: str, table: Iterable[OfficialSetting]) -> Iterator[str]:
    settings = sorted(table, key=lambda setting: setting.name.lower())
    counts = {treatment: sum(setting.treatment is treatment for setting in settings) for treatment in Treatment}
    shown = ", ".join(f"{counts[treatment]} {treatment}" for treatment in reversed(Treatment) if counts[treatment])
    yield f"### {title}\n"
    yield f"{text} {len(settings)} settings: {shown}.\n"
    yield "| setting | default | here | why |"
    yield "|---|---|---|---|"
    for treatment in reversed(Treatment):
        for setting in settings:
            if setting.treatment is treatment:
                yield _row(setting)
    yield ""


def _row(setting: OfficialSetting) -> str:
    default = "*machine*" if setting.default == MACHINE else _value(setting.default)
    return f"| `{setting.name}` | {default} | {setting.treatment} | {_why(setting)} |"


def _why(setting: OfficialSetting) -> str:
    if setting.treatment is Treatment.REFUSED:
        accepted = " or ".join(_value(value) for value in setting.harmless)
        advice = f" {_sentence(setting.advice)}" if setting.advice else ""
        return f"Only {accepted}: another value would promise {setting.note}.{advice}"
    if setting.carrier:
        unit = f", times {setting.factor}" if setting.factor != 1 else ""
        return f"Carried by `{setting.carrier}`{unit}."
    return _sentence(setting.note) if setting.note else ""


def _sentence(text: str) -> str:
    """A name at the beginning keeps its case."""
    first = text.split(" ", 1)[0]
    is_word = first.islower() and first.isalpha()
    return f"{text[0].upper() + text[1:] if is_word else text}."


def _value(text: str) -> str:
    return f"`{text}`" if text else "empty"


def _short(class_name: str) -> str:
    package, _, name = class_name.rpartition(".")
    return f"{name} (tiered store)" if package.endswith("tieredstore") else name


def main() -> int:
    """Write the page."""
    PAGE.write_text(page_text())
    return 0


if __name__ == "__main__":
    sys.exit(main())
