"""The quick start of README.md and the Spark examples run as they are pasted, but for ports and the bucket.

Shell lines run in a shell, in their order, in an empty directory. `make` lines do not: the environment exists
already, and `make test` is what runs here.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.docs.command_lines import FREE_ADDRESS, Daemon, is_daemon
from tests.docs.pages import DOCS, README, ROOT, code_blocks, headings, pages

pytestmark = pytest.mark.xdist_group("docs-readme")

NAME_SERVER, BROKER = "127.0.0.1:9876", "127.0.0.1:10911"
PASTED_COMMAND = ".venv/bin/thermocline"
BUCKET = "s3a://bucket/prefix"
COMMAND_TIMEOUT_S = 120
SPARK_TIMEOUT_S = 800
SPARK_SETTINGS = {"spark.python.authenticate.socketTimeout": "300s"}
"""For busy machines: by default the driver gives up after 15 s when the JVM's socket does not answer."""
SPARK_PAGES = (README, DOCS / "catch-up.md", DOCS / "spark.md")
SHELL_BLOCKS = code_blocks(README, "sh")


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """The quick start's daemon."""

    namesrv: str
    cold_url: str
    directory: Path


def shell_lines() -> list[str]:
    return [line.strip() for block in SHELL_BLOCKS for line in block.text.splitlines() if line.strip()]


@pytest.fixture(scope="module")
def quick_start(module_folder: Path) -> Iterator[Running]:
    """What the README starts, on free ports."""
    (line,) = [line for line in shell_lines() if line.startswith(PASTED_COMMAND) and is_daemon(shlex.split(line)[1:])]
    assert NAME_SERVER in line
    assert BROKER in line
    words = shlex.split(line.replace(NAME_SERVER, FREE_ADDRESS).replace(BROKER, FREE_ADDRESS))
    daemon = Daemon([word.replace("$PWD", str(module_folder)) for word in words[1:]], module_folder)
    try:
        ready = daemon.ready()
        assert list(ready) == re.findall(r"(\w+)=\.\.\.", README.read_text())
        yield Running(namesrv=ready["namesrv"], cold_url=ready["cold"], directory=module_folder)
    finally:
        status = daemon.stop()
    assert status == 0


@pytest.fixture(scope="module")
def outputs(quick_start: Running) -> dict[str, str]:
    """What each command of the quick start printed, in the order in which a newcomer types them."""
    script = quick_start.directory / "thermocline"
    script.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m thermocline.cli "$@"\n')
    script.chmod(0o755)
    printed: dict[str, str] = {}
    for line in shell_lines():
        if not line.startswith(PASTED_COMMAND) or is_daemon(shlex.split(line)[1:]):
            continue
        done = subprocess.run(
            ["sh", "-c", line.replace(PASTED_COMMAND, shlex.quote(str(script)))],
            cwd=quick_start.directory,
            env={**os.environ, "NAMESRV_ADDR": quick_start.namesrv},
            capture_output=True,
            text=True,
            timeout=COMMAND_TIMEOUT_S,
            check=False,
        )
        assert done.returncode == 0, f"{line}: {done.stderr}"
        printed[line.removeprefix(PASTED_COMMAND).strip()] = done.stdout
    return printed


def test_every_command_of_the_quick_start_works(outputs: dict[str, str]) -> None:
    by_name = {" ".join(line.split()[:2]): text for line, text in outputs.items()}
    assert "4 queues" in by_name["topic create"]
    assert "SEND_OK" in by_name["message send"]
    assert "hello" in by_name["message pull"]
    assert "orders" in by_name["tier seal"]
    assert "[0, 1)" in by_name["tier explain"]
    assert "30d" in by_name["ttl set"]


def test_make_targets_are_there() -> None:
    makefile = (ROOT / "Makefile").read_text()
    shown = [line.split()[1] for page in (README, ROOT / "CONTRIBUTING.md") for line in make_lines(page)]
    assert {"demo", "test", "setup"} <= set(shown)
    for target in shown:
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


def replaced(text: str, places: dict[str, str]) -> str:
    for shown, real in places.items():
        text = text.replace(shown, real)
    return text


def make_lines(page: Path) -> Iterator[str]:
    for block in code_blocks(page):
        yield from (line for line in block.text.splitlines() if line.startswith("make "))


def test_the_python_of_the_quick_start_works(quick_start: Running, outputs: dict[str, str]) -> None:
    assert outputs
    (block,) = [block for block in code_blocks(README, "python") if "spark" not in block.text]
    text = block.text.replace(NAME_SERVER, quick_start.namesrv)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", text],
        capture_output=True,
        text=True,
        timeout=COMMAND_TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "one book" in done.stdout or "hello" in done.stdout


@pytest.mark.spark
@pytest.mark.timeout(SPARK_TIMEOUT_S + 100)
@pytest.mark.full
def test_the_spark_examples_work(
    quick_start: Running, outputs: dict[str, str], java_home: Path, tmp_path: Path
) -> None:
    """In one session, for its start takes longer than the examples."""
    pytest.importorskip("pyspark")
    assert outputs
    blocks = [block for page in SPARK_PAGES for block in code_blocks(page, "python")]
    places = {BUCKET: quick_start.cold_url, NAME_SERVER: quick_start.namesrv, '"/data/': f'"{tmp_path}/'}
    examples = [replaced(block.text, places) for block in blocks if "spark" in block.text]
    assert len(examples) >= 3
    program = [
        "from thermocline.spark import local_session",
        f"url = {quick_start.cold_url!r}",
        f"spark = local_session(cores=1, settings={SPARK_SETTINGS!r})",
        *examples,
        "assert df.count() >= 1",  # what other examples have sent is sealed too
        "query.processAllAvailable()",
        "query.stop()",
        f"assert spark.read.parquet({str(tmp_path / 'orders')!r}).count() >= df.count()",
        "spark.stop()",
    ]
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(program)],
        cwd=tmp_path,
        env={**os.environ, "JAVA_HOME": str(java_home)},
        capture_output=True,
        text=True,
        timeout=SPARK_TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "first" in done.stdout, "the key of the message that was sealed"


# -- what all documents keep -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", [*pages(), ROOT / "CONTRIBUTING.md"], ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target, heading in re.findall(r"\]\(([^)#]*)(?:#([^)]+))?\)", page.read_text()):
        if "://" in target:
            continue
        place = page.parent / target if target else page
        assert place.exists(), target
        if heading and place.suffix == ".md":
            assert heading in {anchor(each) for each in headings(place)}, f"{target}#{heading}"


def anchor(heading: str) -> str:
    """What a link to the heading ends in."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
