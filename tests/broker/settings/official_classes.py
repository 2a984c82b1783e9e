"""The settings that official configuration classes have, asked of their jars by `java/OfficialSettings.java`."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path

from thermocline.remoting.settings import MACHINE, OfficialSetting

_PROGRAM = Path(__file__).parent / "java" / "OfficialSettings.java"
_ANSWER_TIMEOUT_S = 120.0
NO_DEFAULT = "-"


def official_settings(
    jdk_home: Path, jars: Path, home: Path, class_names: Iterable[str]
) -> Mapping[str, Mapping[str, str]]:
    """The defaults of each class, by name. `home`: what the classes take for the user's folder."""
    names = list(class_names)
    java = [str(jdk_home / "bin" / "java"), f"-Duser.home={home}", "-cp", str(jars / "*")]
    finished = subprocess.run(
        [*java, str(_PROGRAM), *names],
        capture_output=True,
        timeout=_ANSWER_TIMEOUT_S,
        encoding="utf-8",
        check=False,
        env={name: text for name, text in os.environ.items() if name not in ("NAMESRV_ADDR", "ROCKETMQ_HOME")},
    )
    assert finished.returncode == 0, finished.stderr
    official: dict[str, dict[str, str]] = {name: {} for name in names}
    for line in finished.stdout.splitlines():
        if line.startswith("SETTING\t"):
            _, class_name, name, default = line.split("\t")
            official[class_name][name] = default
    return official


def check_table(class_name: str, table: Iterable[OfficialSetting], official: Mapping[str, str]) -> None:
    """Fail when names or defaults of a table are not those of the class."""
    ours = {setting.name: setting for setting in table}
    assert ours.keys() == official.keys(), class_name
    for name, default in official.items():
        if ours[name].default != MACHINE and default != NO_DEFAULT:
            assert ours[name].default == default, f"{class_name}.{name}"
