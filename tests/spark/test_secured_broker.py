"""Spark with a broker and a NameServer that take TLS and signed requests alone: reads of history and of what the broker
holds, writes and streams; where the keys are seen; what a wrong key does.

Each application is a process of its own, as its keys come from its environment.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures_tools import have
from tests.interop.secured import Secured, secured_daemons
from tests.spark.secured_job import SOURCE, STREAMED, WRITTEN
from tests.waiting import wait_until
from thermocline.client import Credentials, Message, Producer
from tooling.system_packages import find_java_home

pytest.importorskip("pyspark")
pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark"), pytest.mark.timeout(900)]

ROOT_FOLDER = Path(__file__).resolve().parents[2]
JOB_TIMEOUT_S = 600
SPARK = Credentials(access_key="spark", secret_key="planted-key-of-spark")
WRONG = Credentials(access_key="spark", secret_key="planted-wrong-key")
COLD, LIVE = range(40), range(40, 60)
RIGHTS = (
    (["Topic:orders"], ["Sub"]),
    (["Topic:copies"], ["Pub", "Sub", "Get"]),
    (["Topic:streamed"], ["Pub"]),
    (["Group:TOOLS_CONSUMER"], ["Sub"]),
    (["Cluster:*"], ["Get"]),
)
"""What docs/spark.md says that an application needs on a broker."""
NAME_SERVER_RIGHTS = (
    (["Topic:orders", "Topic:copies", "Topic:streamed"], ["Get"]),
    (["Cluster:*"], ["Get", "Update"]),
)
REFUSALS_MAX = 40
"""Of a whole application with a wrong key: a step is refused a few times, by each of its processes, and ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """The daemons with a topic whose history is half in the bucket, and the application's user."""

    secured: Secured

    @property
    def cold_url(self) -> str:
        return (self.secured.directory / "daemons" / "cold").as_uri()

    def bodies(self, topic: str) -> list[bytes]:
        with self.secured.admin() as admin:
            found = []
            for stats in admin.topic_stats(topic):
                position = 0
                while position < admin.max_offset(stats.queue):
                    messages = admin.pull(stats.queue, position, count_max=1_024).messages
                    found += [message.body for message in messages]
                    position += len(messages)
        return sorted(found, key=int)

    def refusals(self, user: str) -> int:
        return len(self.secured.denials(user)) + len(self.secured.name_server_denials(user))


@pytest.fixture(scope="module")
def site(module_folder: Path) -> Iterator[Site]:
    have(lambda: find_java_home(with_compiler=False))
    with secured_daemons(module_folder, more={"coldSealAgeMs": "3600000"}) as secured:
        site = Site(secured=secured)
        with secured.admin() as admin:
            for name_servers, rights in ((False, RIGHTS), (True, NAME_SERVER_RIGHTS)):
                admin.create_user(SPARK.access_key, SPARK.secret_key, name_servers=name_servers)
                for resources, actions in rights:
                    admin.set_acl("User:spark", resources, actions, name_servers=name_servers)
            admin.create_topic(SOURCE, queue_nums=1)
            for topic in (WRITTEN, STREAMED):
                admin.create_topic(topic, queue_nums=2)
            root = secured.root
            with Producer(namesrv=secured.namesrv, group="p", tls=secured.tls, credentials=root) as producer:
                producer.send_many(Message(SOURCE, b"%d" % index) for index in COLD)
                wait_until(lambda: has_sealed(admin), what="the topic is sealed")
                producer.send_many(Message(SOURCE, b"%d" % index) for index in LIVE)
        yield site


def has_sealed(admin: Any) -> bool:
    from thermocline.remoting.errors import UnavailableError

    try:
        admin.tier_seal(SOURCE)
    except UnavailableError:  # the tier process has not started yet
        return False
    return True


class Application:
    """A run of the program, watched while it runs."""

    def __init__(self, site: Site, folder: Path, environment: Mapping[str, str], master: str) -> None:
        folder.mkdir(parents=True)
        self.folder = folder
        self.command_lines: set[str] = set()
        output = folder / "output.txt"
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
        inherited["PYTHONPATH"] = os.pathsep.join([str(ROOT_FOLDER / "src"), str(ROOT_FOLDER)])
        with output.open("wb") as file:
            process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "tests.spark.secured_job"),
                    *(site.cold_url, site.secured.namesrv, str(folder), master),
                ],
                cwd=ROOT_FOLDER,
                env={**inherited, **environment},
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        wait_until(lambda: self._ended(process), what="the application ends", timeout_s=JOB_TIMEOUT_S, interval_s=0.1)
        result = folder / "result.json"
        assert result.exists(), output.read_text()[-8_000:]
        document = json.loads(result.read_text())
        self.results: dict[str, Any] = document["results"]

    def _ended(self, process: subprocess.Popen[bytes]) -> bool:
        self.command_lines |= command_lines(process.pid)
        return process.poll() is not None

    def everything(self) -> dict[str, bytes]:
        """All that is left of the run: files, among them event logs, pages and plans; and command lines."""
        files = {str(path): path.read_bytes() for path in self.folder.rglob("*") if path.is_file()}
        return {**files, "command lines": "\n".join(self.command_lines).encode()}


def command_lines(session: int) -> set[str]:
    """Of all processes of the machine that belong to a session."""
    found = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if os.getsid(int(entry.name)) == session:
                    found.add((entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace"))
            except (FileNotFoundError, ProcessLookupError):
                continue
    return found


def keys_by_file(site: Site, folder: Path, keys: Credentials) -> dict[str, str]:
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "spark.keys"
    file.write_text(f"accessKey: {keys.access_key}\nsecretKey: {keys.secret_key}\n")
    file.chmod(0o600)
    tls = {name: value for name, value in site.secured.environment(keys).items() if "CLIENT_TLS" in name}
    return {**tls, "THERMOCLINE_CREDENTIALS_FILE": str(file)}


@pytest.mark.full
@pytest.mark.parametrize(
    ("master", "by_file"),
    [("local[2]", False), ("local-cluster[1,1,1024]", True)],
)
def test_an_application_reads_and_writes_and_shows_no_key(
    site: Site, tmp_path: Path, master: str, by_file: bool
) -> None:
    before = {topic: len(site.bodies(topic)) for topic in (WRITTEN, STREAMED)}
    environment = keys_by_file(site, tmp_path / "keys", SPARK) if by_file else site.secured.environment(SPARK)
    job = Application(site, tmp_path / "job", environment, master)
    for step, result in job.results.items():
        assert not isinstance(result, dict), f"{step}: {result['error']}"
    assert job.results["batch read"] == list(COLD)
    assert set(site.bodies(WRITTEN)) == {b"%d" % index for index in range(20)}
    assert len(site.bodies(WRITTEN)) == before[WRITTEN] + 20
    assert set(site.bodies(STREAMED)) == {b"%d" % index for index in (*COLD, *LIVE)}
    assert len(site.bodies(STREAMED)) == before[STREAMED] + len(COLD) + len(LIVE)
    assert any("org.apache.spark" in line for line in job.command_lines)
    assert any("daemon" in line for line in job.command_lines), "Python workers were seen"
    everything = job.everything()
    assert any("events" in name for name in everything)
    for place, data in everything.items():
        assert SPARK.secret_key.encode() not in data, place


@pytest.mark.full
def test_a_wrong_key_ends_each_step_with_an_error_and_without_a_storm(site: Site, tmp_path: Path) -> None:
    before = site.refusals(WRONG.access_key)
    job = Application(site, tmp_path / "job", site.secured.environment(WRONG), "local[2]")
    assert job.results["batch read"] == list(COLD), "no broker takes part"
    for step in ("batch write", "stream"):
        text = job.results[step]["error"]
        assert "check signature failed." in text, text[-3_000:]
    assert before < site.refusals(WRONG.access_key) <= before + REFUSALS_MAX
    for place, data in job.everything().items():
        assert WRONG.secret_key.encode() not in data, place
