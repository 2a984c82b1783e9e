"""Artifacts come from real HTTP servers on loopback, with the checks that a wrong answer must meet."""

from __future__ import annotations

import base64
import hashlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pyspark
import pytest

from tests.fixtures_tools import have
from thermocline.localstack.loopback_port import LOOPBACK, free_port
from thermocline.remoting.errors import CorruptDataError, InvalidRequestError, UnavailableError
from thermocline.spark.connector.__main__ import main
from thermocline.spark.connector.maven_repository import Artifact, fetch_artifacts, find_artifacts
from thermocline.spark.connector.maven_settings import MavenSettings, Repository
from thermocline.spark.connector.s3a_connector import (
    central_url,
    connector_error,
    connector_jars,
    fitting_artifacts,
    locked_artifacts,
)
from tooling.java_libraries import find_s3a_jars

JAR = b"PK a jar"


def artifact(name: str = "tool", data: bytes = JAR) -> Artifact:
    return Artifact(group="com.example", name=name, version="1.0", sha256=hashlib.sha256(data).hexdigest())


@dataclass(slots=True)
class MavenServer:
    """A repository; `files` by path. With `login`, requests without it are refused."""

    files: dict[str, bytes]
    login: str = ""
    asked: list[str] = field(default_factory=list)
    url: str = ""

    def repository(self, name: str = "near", *, user: str = "", password: str = "") -> Repository:
        return Repository(repository_id=name, url=self.url, user=user, password=password, proxy="")


@pytest.fixture
def server() -> Iterator[MavenServer]:
    served = MavenServer({artifact().path: JAR})

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = self.path.rpartition("/maven/")[2]  # a request to a proxy has the whole URL
            served.asked.append(self.path)
            wanted = "Basic " + base64.b64encode(served.login.encode()).decode()
            data = served.files.get(path)
            if served.login and self.headers.get("Authorization") != wanted:
                self.send_error(401)
            elif data is None:
                self.send_error(404)
            else:
                self.send_response(200)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer((LOOPBACK, 0), Handler) as listening:
        served.url = f"http://{LOOPBACK}:{listening.server_port}/maven"
        thread = threading.Thread(target=listening.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield served
        finally:
            listening.shutdown()
            thread.join()


def settings(folder: Path, *repositories: Repository, is_offline: bool = False) -> MavenSettings:
    return MavenSettings(local_repository=folder, repositories=repositories, is_offline=is_offline)


def test_missing_jars_are_fetched_once_into_the_maven_layout(server: MavenServer, tmp_path: Path) -> None:
    chosen = settings(tmp_path, server.repository())
    assert find_artifacts([artifact()], chosen) == []
    (jar,) = fetch_artifacts([artifact()], chosen)
    assert jar == tmp_path / "com/example/tool/1.0/tool-1.0.jar"
    assert jar.read_bytes() == JAR
    assert [each.name for each in jar.parent.iterdir()] == [jar.name]
    assert fetch_artifacts([artifact()], chosen) == find_artifacts([artifact()], chosen) == [jar]
    assert len(server.asked) == 1


def test_a_damaged_local_jar_is_fetched_again(server: MavenServer, tmp_path: Path) -> None:
    chosen = settings(tmp_path, server.repository())
    (jar,) = fetch_artifacts([artifact()], chosen)
    jar.write_bytes(JAR[:-1])
    fetch_artifacts([artifact()], chosen)
    assert jar.read_bytes() == JAR


def test_another_checksum_is_refused_and_not_kept(server: MavenServer, tmp_path: Path) -> None:
    server.files[artifact().path] = b"something else"
    with pytest.raises(CorruptDataError, match="another checksum repository=near artifact="):
        fetch_artifacts([artifact()], settings(tmp_path, server.repository()))
    assert not list(tmp_path.rglob("*.jar"))


def test_the_login_of_the_settings_is_used_and_a_wrong_one_named(server: MavenServer, tmp_path: Path) -> None:
    server.login = "ann:pass"
    fetch_artifacts([artifact()], settings(tmp_path / "one", server.repository(user="ann", password="pass")))
    with pytest.raises(InvalidRequestError, match=r"the Maven repository refuses repository=near .* status=401"):
        fetch_artifacts([artifact()], settings(tmp_path / "two", server.repository(user="ann", password="wrong")))


def test_the_next_repository_is_tried_and_a_failure_is_reported(server: MavenServer, tmp_path: Path) -> None:
    away = Repository(repository_id="away", url=f"http://{LOOPBACK}:{free_port()}/maven", proxy="")
    assert fetch_artifacts([artifact()], settings(tmp_path / "one", away, server.repository()))
    with pytest.raises(UnavailableError, match="the Maven repository gives no answer repository=away"):
        fetch_artifacts([artifact("other")], settings(tmp_path / "two", away, server.repository()))
    with pytest.raises(InvalidRequestError, match=r"no Maven repository has this artifact .* asked=near"):
        fetch_artifacts([artifact("other")], settings(tmp_path / "two", server.repository()))


def test_a_local_repository_that_cannot_be_written_is_named(server: MavenServer, tmp_path: Path) -> None:
    """As a read-only home directory; a user of `local_session(s3a=True)` saw a stack of threads."""
    (tmp_path / "file").touch()
    for place, reason in (("file", "Not a directory"), ("/proc/none", "No such file")):
        found = MavenSettings(local_repository=tmp_path / place, repositories=(server.repository(),))
        with pytest.raises(InvalidRequestError, match=f"local repository cannot be used file=.* reason={reason}"):
            fetch_artifacts([artifact()], found)


def test_a_repository_whose_url_is_none_is_named(server: MavenServer, tmp_path: Path) -> None:
    """As of a variable that is not set in the environment."""
    unset = Repository(repository_id="unset", url="${env.MIRROR}", proxy="")
    alone = MavenSettings(local_repository=tmp_path, repositories=(unset,))
    with pytest.raises(InvalidRequestError, match="the URL of the Maven repository is none repository=unset"):
        fetch_artifacts([artifact()], alone)
    both = MavenSettings(local_repository=tmp_path, repositories=(unset, server.repository()))
    assert fetch_artifacts([artifact()], both)[0].read_bytes() == JAR


def test_offline_asks_for_nothing(server: MavenServer, tmp_path: Path) -> None:
    with pytest.raises(InvalidRequestError, match="Maven's settings say offline"):
        fetch_artifacts([artifact()], settings(tmp_path, server.repository(), is_offline=True))
    assert not server.asked


def test_a_proxy_of_the_settings_is_asked(server: MavenServer, tmp_path: Path) -> None:
    proxy = server.url.removesuffix("/maven")
    behind = Repository(repository_id="far", url="http://maven.invalid/maven", proxy=proxy)
    assert fetch_artifacts([artifact()], settings(tmp_path, behind))
    assert server.asked == [f"http://maven.invalid/maven/{artifact().path}"]


# -- the connector -------------------------------------------------------------------------------------------------


def spark_home(folder: Path, *jars: str) -> str:
    (folder / "jars").mkdir(parents=True)
    for jar in jars:
        (folder / "jars" / jar).touch()
    return str(folder)


def test_the_connector_comes_through_a_mirror_of_the_settings(server: MavenServer, tmp_path: Path) -> None:
    """All of its jars, from a mirror, into an empty local repository."""
    at_hand = have(find_s3a_jars)
    server.files = {each.path: jar.read_bytes() for each, jar in zip(locked_artifacts(), at_hand, strict=True)}
    folder = tmp_path / ".m2"
    folder.mkdir()
    mirror = f"<mirror><id>near</id><mirrorOf>*</mirrorOf><url>{server.url}</url></mirror>"
    (folder / "settings.xml").write_text(f"<settings><mirrors>{mirror}</mirrors></settings>")
    home = spark_home(tmp_path / "spark", "hadoop-client-api-3.5.0.jar")
    environment = {"HOME": str(tmp_path), "PATH": "", "SPARK_HOME": home}
    jars = connector_jars(environment)
    assert jars[0] == folder / "repository/org/apache/hadoop/hadoop-aws/3.5.0/hadoop-aws-3.5.0.jar"
    assert [jar.name for jar in jars] == [jar.name for jar in at_hand]
    assert len(server.asked) == len(jars)
    (folder / "settings.xml").write_text("<settings><offline>true</offline></settings>")
    assert connector_jars(environment) == jars, "no request when all jars are present"


def test_a_sentence_tells_how_to_get_jars_that_cannot_be_fetched(tmp_path: Path) -> None:
    (tmp_path / ".m2").mkdir()
    mirror = f"<mirror><id>away</id><mirrorOf>*</mirrorOf><url>http://{LOOPBACK}:{free_port()}</url></mirror>"
    (tmp_path / ".m2" / "settings.xml").write_text(f"<settings><mirrors>{mirror}</mirrors></settings>")
    home = spark_home(tmp_path / "spark", "hadoop-client-api-3.5.0.jar")
    environment = {"HOME": str(tmp_path), "PATH": "", "SPARK_HOME": home, "no_proxy": "*"}
    wanted = r"spark\.jars\.packages: org\.apache\.hadoop:hadoop-aws:3\.5\.0 .*gives no answer repository=away"
    with pytest.raises(UnavailableError, match=wanted):
        connector_jars(environment)


def test_another_hadoop_is_refused_with_the_artifact_that_it_needs() -> None:
    with pytest.raises(InvalidRequestError, match=r"put org\.apache\.hadoop:hadoop-aws:3\.4\.2 into spark\.jars"):
        fitting_artifacts("3.4.2")


def test_a_spark_that_has_the_connector_needs_nothing(tmp_path: Path) -> None:
    home = spark_home(tmp_path / "spark", "hadoop-client-api-3.4.2.jar", "hadoop-aws-3.4.2.jar")
    assert connector_jars({"HOME": str(tmp_path), "PATH": "", "SPARK_HOME": home}) == ()


def test_the_jars_are_printed_for_spark_submit(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    jars = have(find_s3a_jars)
    assert main() == 0
    assert capsys.readouterr().out == ",".join(map(str, jars)) + "\n"
    (tmp_path / ".m2").mkdir()
    (tmp_path / ".m2" / "settings.xml").write_text("<settings><offline>true</offline></settings>")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert main() == 1
    out, err = capsys.readouterr()
    assert not out
    assert "Maven's settings say offline" in err


@pytest.mark.parametrize(
    ("names", "texts", "sentence"),
    [
        (
            ["java.lang.RuntimeException", "java.lang.ClassNotFoundException"],
            ["Class org.apache.hadoop.fs.s3a.S3AFileSystem not found"] * 2,
            "PySpark does not bring org.apache.hadoop:hadoop-aws:3.5.0",
        ),
        (
            ["java.lang.NoClassDefFoundError"],
            ["software/amazon/awssdk/core/exception/SdkException"],
            "lacks a class: it needs org.apache.hadoop:hadoop-aws:3.5.0 with all that it depends on",
        ),
        (
            ["java.io.IOException", "java.lang.NoSuchMethodError"],
            ["null", "'void org.apache.hadoop.util.SemaphoredDelegatingExecutor.<init>()'"],
            "does not fit its Hadoop: it needs org.apache.hadoop:hadoop-aws:3.5.0",
        ),
    ],
)
def test_jars_missing_in_a_session_are_named(names: list[str], texts: list[str], sentence: str) -> None:
    error = connector_error("3.5.0", names, texts)
    assert error is not None
    assert sentence in str(error)


def test_failures_of_the_store_are_left_to_others() -> None:
    assert connector_error("3.5.0", ["java.net.ConnectException"], ["Connection refused"]) is None


def test_central_is_where_the_installed_spark_asks(tmp_path: Path) -> None:
    """Spark's own Ivy names it; a Spark without one is passed over."""
    bare = Path(spark_home(tmp_path / "spark", "hadoop-client-api-3.5.0.jar"))
    installed = Path(pyspark.__file__).parent
    assert central_url([bare, installed]) == central_url([installed])
    assert central_url([installed]).endswith("/maven2/")
    with pytest.raises(InvalidRequestError, match="Ivy"):
        central_url([bare])
