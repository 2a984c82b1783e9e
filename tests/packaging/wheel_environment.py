"""Environments with the built wheel and nothing else of ours: no checkout on a path, no package that it does not need.

pip installs the wheel by its declared requirements, without an index. What they lead to is there already: links to
those packages of this environment, and to no others. So an import that no requirement declares fails, as does a
requirement that is not met, without a registry being asked. `make soak` installs from the registry instead.
"""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
PROJECT = "thermocline"
TIMEOUT_S = 600
SOURCE_FILES = ("pyproject.toml", "README.md", "LICENSE", "MANIFEST.in")
# Of this process: they would lead to the checkout, or to another installation.
LEFT_OUT = ("PYTHON", "PYTEST_", "VIRTUAL_ENV", "SPARK_HOME", "PYSPARK_", "NAMESRV_ADDR")


@dataclass(frozen=True, slots=True, kw_only=True)
class WheelEnvironment:
    """An environment whose programs run in `directory`, outside the checkout."""

    prefix: Path
    directory: Path
    variables: Mapping[str, str]

    @property
    def python(self) -> Path:
        """Its interpreter."""
        return self.prefix / "bin" / "python"

    @property
    def command(self) -> Path:
        """Its `thermocline`."""
        return self.prefix / "bin" / "thermocline"

    def run(
        self, *words: str | Path, status: int = 0, timeout_s: float = TIMEOUT_S
    ) -> subprocess.CompletedProcess[str]:
        """Run a program in it; its status has to be this one, and there may be no traceback."""
        done = subprocess.run(
            [str(word) for word in words],
            cwd=self.directory,
            env=dict(self.variables),
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        assert done.returncode == status, done.stdout[-8_000:] + done.stderr[-8_000:]
        assert "Traceback" not in done.stderr, done.stderr[-8_000:]
        return done


def copy_sources(target: Path) -> Path:
    """What a distribution is built from, copied, so that the build leaves nothing in the checkout."""
    target.mkdir(parents=True)
    for name in SOURCE_FILES:
        shutil.copy2(ROOT / name, target / name)
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
    shutil.copytree(ROOT / "src", target / "src", symlinks=True, ignore=ignored)
    for link in (target / "src" / PROJECT).iterdir():
        if link.is_symlink():
            shutil.copytree(ROOT / link.name, target / link.name, ignore=ignored)
    return target


def build(source: Path, target: Path, *kinds: str) -> None:
    """Build distributions into `target`: `--wheel`, `--sdist`, or without either an sdist and a wheel from it."""
    command = [sys.executable, "-m", "build", "--no-isolation", *kinds, "--outdir", str(target), str(source)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert done.returncode == 0, done.stdout[-8_000:] + done.stderr[-8_000:]


def make_environment(
    folder: Path,
    distribution: Path,
    *,
    extras: str = "",
    from_registry: bool = False,
    constraints: Iterable[str] = (),
) -> WheelEnvironment:
    """A new environment in `folder` with the wheel (or sdist) installed by pip; `extras` as `[spark]`. `constraints`:
    which versions of packages it may have."""
    prefix, directory = folder / "environment", folder / "elsewhere"
    directory.mkdir(parents=True)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(prefix)], check=True, timeout=TIMEOUT_S)
    (site,) = prefix.glob("lib/python*/site-packages")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", str(prefix), "install", "--quiet"]
    if not from_registry:
        needed = requirements(extras.strip("[]").split(","))
        is_source = distribution.name.endswith(".tar.gz")
        _link_packages(folder / "packages", needed | ({"setuptools"} if is_source else set()))
        (site / "packages.pth").write_text(f"{folder / 'packages'}\n")
        pip += ["--no-index", "--no-build-isolation"]
    (folder / "constraints").write_text("".join(f"{line}\n" for line in constraints))
    pip += ["--constraint", str(folder / "constraints")]
    variables = {name: value for name, value in os.environ.items() if not name.startswith(LEFT_OUT)}
    done = subprocess.run(
        [*pip, f"{distribution}{extras}"],
        cwd=directory,
        env=variables | {"PIP_FIND_LINKS": ""},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-8_000:] + done.stderr[-8_000:]
    return WheelEnvironment(prefix=prefix, directory=directory, variables=variables)


def requirements(extras: Iterable[str]) -> set[str]:
    """Names of all packages that the project needs with these extras, by what the packages themselves declare."""
    found: set[str] = set()
    waiting = [(PROJECT, frozenset(filter(None, extras)))]
    seen: set[tuple[str, frozenset[str]]] = set()
    while waiting:
        name, wanted = waiting.pop()
        if (name, wanted) in seen:
            continue
        seen.add((name, wanted))
        for line in importlib.metadata.requires(name) or ():
            requirement = Requirement(line)
            marker = requirement.marker
            if marker is None or any(marker.evaluate({"extra": extra}) for extra in (*wanted, "")):
                needed = canonicalize_name(requirement.name)
                found.add(needed)
                waiting.append((needed, frozenset(requirement.extras)))
    return found


def lowest_versions() -> list[str]:
    """The lowest versions that the project says it runs with, as constraints."""
    found: list[str] = []
    for line in tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]:
        requirement = Requirement(line)
        (lowest,) = requirement.specifier
        found.append(f"{requirement.name}=={lowest.version}" + (".*" if lowest.operator == ">=" else ""))
    return found


def _link_packages(folder: Path, names: Iterable[str]) -> None:
    """A directory with links to these packages of this environment and what describes them."""
    folder.mkdir()
    for name in names:
        distribution = importlib.metadata.distribution(name)
        for top in {file.parts[0] for file in distribution.files or () if file.parts[0] not in ("..", "__pycache__")}:
            link = folder / top
            if not link.is_symlink():
                link.symlink_to(Path(str(distribution.locate_file(top))).resolve())
