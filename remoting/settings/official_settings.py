"""Settings of Apache RocketMQ: what each of them means to a daemon of ours, and the check of a value.

A `broker.conf` or `namesrv.conf` that was written for RocketMQ names fields of its configuration classes. Each name has
one of three treatments:

    HONOURED        a setting of ours carries it
    WITHOUT_EFFECT  accepted; every value is harmless, `note` says why
    REFUSED         only the `harmless` values are accepted; any other value would promise what is not done here, which
                    `note` completes: "it would promise <note>"

A refused value ends the start with one sentence, and a change while running gets it as an error answer: the daemon
never does less than its configuration asks for.

The tables hold the name and the default of release 5.5.0 (`MACHINE`: the official default depends on the machine).
tests/broker/settings/test_official_settings.py compares both with the official classes; docs/rocketmq-settings.md is
made from the tables.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum

import msgspec

from thermocline.remoting.errors import SettingError

MACHINE = "(machine)"
"""In place of a default that depends on the machine: its address, its processors, its environment."""


class Treatment(StrEnum):
    """What a name of RocketMQ means here."""

    HONOURED = "honoured"
    WITHOUT_EFFECT = "without effect"
    REFUSED = "refused"


class OfficialSetting(msgspec.Struct, frozen=True, kw_only=True):
    """One setting of RocketMQ. `default` is its official text, empty for none."""

    name: str
    default: str
    treatment: Treatment
    note: str = ""
    advice: str = ""
    """REFUSED: what to do instead, if there is something."""
    harmless: tuple[str, ...] = ()
    """REFUSED: the accepted values; the first one is what is true here."""
    carrier: str = ""
    """HONOURED: the property of ours that carries it, if that has another name."""
    factor: int = 1
    """HONOURED with a carrier: what a value is multiplied by to be in the carrier's unit."""
    is_secret: bool = False
    """The value is not shown in errors."""

    def accepts(self, text: str) -> bool:
        """Whether a value is one that this daemon can keep to."""
        return self.treatment is not Treatment.REFUSED or any(_is_same(text, value) for value in self.harmless)

    def check(self, text: str, *, source: str) -> None:
        """Refuse a value that would promise what is not done.

        Raises:
            SettingError: The sentence for the operator; `source` says where the value was set.
        """
        if self.accepts(text):
            return
        shown = "***" if self.is_secret else text.strip()
        true_here = self.harmless[0]
        remedy = f"set {self.name}={true_here} or remove it" if true_here else f"remove {self.name}"
        advice = f"; {self.advice}" if self.advice else ""
        raise SettingError(
            f"{self.name}={shown} is refused: it would promise {self.note}, which is not built; {remedy}{advice}",
            source=source,
        )


def resolve(settings: Mapping[str, OfficialSetting], name: str, text: str, *, source: str) -> tuple[str, str]:
    """Check what a name of RocketMQ asks for; returns the name and the text of the setting that carries it.

    A name that is not RocketMQ's comes back as it is.

    Raises:
        SettingError: The value promises what is not built, or is no number where one is needed.
    """
    setting = settings.get(name)
    if setting is None:
        return name, text
    setting.check(text, source=source)
    if not setting.carrier:
        return name, text
    if setting.factor == 1:
        return setting.carrier, text
    try:
        return setting.carrier, str(int(text.strip().replace("_", "")) * setting.factor)
    except ValueError:
        raise SettingError(f"{name}: a whole number is needed", value=text, source=source) from None


def fixed_values(*tables: Iterable[OfficialSetting]) -> dict[str, str]:
    """What is so and cannot be otherwise, by name: shown along with the settings, as tools look for it."""
    return {
        setting.name: setting.harmless[0]
        for table in tables
        for setting in table
        if setting.treatment is Treatment.REFUSED
    }


def honoured(defaults: Mapping[str, str], note: str = "") -> Iterable[OfficialSetting]:
    """Settings that settings of the same name carry; `note`: a difference, if there is one."""
    for name, default in defaults.items():
        yield OfficialSetting(name=name, default=default, treatment=Treatment.HONOURED, note=note)


def carried(name: str, default: str, *, carrier: str, factor: int = 1) -> OfficialSetting:
    """A setting that one of another name carries, in a unit that is `factor` times smaller."""
    return OfficialSetting(name=name, default=default, treatment=Treatment.HONOURED, carrier=carrier, factor=factor)


def without_effect(note: str, defaults: Mapping[str, str]) -> Iterable[OfficialSetting]:
    """Settings of which every value is harmless, because of `note`."""
    for name, default in defaults.items():
        yield OfficialSetting(name=name, default=default, treatment=Treatment.WITHOUT_EFFECT, note=note)


def refused(
    promise: str,
    defaults: Mapping[str, str],
    *,
    advice: str = "",
    also: tuple[str, ...] = (),
    true_here: str | None = None,
    is_secret: bool = False,
) -> Iterable[OfficialSetting]:
    """Settings of which another value than the default would promise `promise`.

    `also`: further harmless values; `true_here`: the value that is true of this daemon, if not the default.
    """
    for name, default in defaults.items():
        values = (default, *also) if true_here is None else (true_here, default, *also)
        yield OfficialSetting(
            name=name,
            default=default,
            treatment=Treatment.REFUSED,
            note=promise,
            advice=advice,
            harmless=tuple(dict.fromkeys(values)),
            is_secret=is_secret,
        )


def by_name(*tables: Iterable[OfficialSetting]) -> dict[str, OfficialSetting]:
    """The settings of all classes that one daemon reads, by name; the first table that names one counts."""
    found: dict[str, OfficialSetting] = {}
    for table in tables:
        for setting in table:
            first = found.setdefault(setting.name, setting)
            assert first.treatment is setting.treatment, f"two treatments of {setting.name}"
    return found


def _is_same(text: str, value: str) -> bool:
    """Whether two texts are one value: numbers by value, words whatever their case."""
    if text.strip().casefold() == value.casefold():
        return True
    try:
        return float(text.replace("_", "")) == float(value)
    except ValueError:
        return False
