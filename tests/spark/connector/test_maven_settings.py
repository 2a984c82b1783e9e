"""Maven's settings files are read as Maven reads them: mirrors, servers, proxies, profiles, the user's first."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from thermocline.remoting.errors import InvalidRequestError
from thermocline.spark.connector.maven_settings import MavenSettings, Repository, is_mirrored, read_maven_settings

CENTRAL_URL = "https://central.example/maven2"
MIRROR = "<mirror><id>{0}</id><mirrorOf>{1}</mirrorOf><url>{2}</url></mirror>"


def settings(folder: Path, inside: str, *, name: str = ".m2/settings.xml", namespace: bool = True) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    space = ' xmlns="http://maven.apache.org/SETTINGS/1.2.0"' if namespace else ""
    path.write_text(f"<settings{space}>{inside}</settings>")
    return folder


def read(home: Path, **environment: str) -> tuple[Repository, ...]:
    return settings_of({"HOME": str(home), "PATH": ""} | environment).repositories


def settings_of(environment: Mapping[str, str]) -> MavenSettings:
    return read_maven_settings(environment, central_url=CENTRAL_URL)


def test_without_settings_it_is_central_and_the_usual_local_repository(tmp_path: Path) -> None:
    found = settings_of({"HOME": str(tmp_path), "PATH": ""})
    assert found.repositories == (Repository(repository_id="central", url=CENTRAL_URL),)
    assert found.local_repository == tmp_path / ".m2" / "repository"
    assert not found.is_offline


@pytest.mark.parametrize("namespace", [True, False])
def test_a_mirror_stands_for_central_with_the_login_of_its_server(tmp_path: Path, namespace: bool) -> None:
    servers = "<server><id>inside</id><username>ann</username><password>${env.SECRET}</password></server>"
    mirror = MIRROR.format("inside", "*", "https://maven.example/all/")
    settings(
        tmp_path,
        f"<localRepository>${{user.home}}/jars</localRepository><offline>true</offline>"
        f"<mirrors>{mirror}</mirrors><servers>{servers}</servers>",
        namespace=namespace,
    )
    found = settings_of({"HOME": str(tmp_path), "PATH": "", "SECRET": "pass"})
    (repository,) = found.repositories
    assert repository == Repository(
        repository_id="inside", url="https://maven.example/all", user="ann", password="pass"
    )
    assert found.local_repository == tmp_path / "jars"
    assert found.is_offline


@pytest.mark.parametrize(
    ("pattern", "is_named"),
    [
        ("central", True),
        ("*", True),
        ("external:*", True),
        ("other, central", True),
        ("*,!central", False),
        ("external:http:*", False),  # what Maven's own settings block
        ("other", False),
    ],
)
def test_mirror_patterns(pattern: str, is_named: bool) -> None:
    assert is_mirrored(pattern, "central", CENTRAL_URL) is is_named


def test_external_leaves_this_machine_out() -> None:
    assert not is_mirrored("external:*", "here", "http://127.0.0.1:8081/maven")
    assert is_mirrored("external:http:*", "plain", "http://maven.example/maven")


def test_the_user_counts_before_the_installation(tmp_path: Path) -> None:
    maven = settings(
        tmp_path / "maven",
        f"<mirrors>{MIRROR.format('far', '*', 'https://far.example')}</mirrors><localRepository>/far</localRepository>",
        name="conf/settings.xml",
    )
    home = tmp_path / "home"
    assert [each.url for each in read(home, MAVEN_HOME=str(maven))] == ["https://far.example"]
    settings(home, f"<mirrors>{MIRROR.format('near', 'central', 'https://near.example')}</mirrors>")
    assert [each.url for each in read(home, MAVEN_HOME=str(maven))] == ["https://near.example"]
    assert settings_of({"HOME": str(home), "MAVEN_HOME": str(maven)}).local_repository == Path("/far")


def test_active_profiles_bring_repositories_and_may_replace_central(tmp_path: Path) -> None:
    def profile(name: str, repository: str, url: str) -> str:
        inside = f"<repository><id>{repository}</id><url>{url}</url></repository>"
        return f"<profile><id>{name}</id><repositories>{inside}</repositories></profile>"

    profiles = profile("work", "central", "https://work.example") + profile("idle", "idle", "https://idle.example")
    active = "<activeProfiles><activeProfile>work</activeProfile></activeProfiles>"
    settings(tmp_path, f"<profiles>{profiles}</profiles>{active}")
    assert [(each.repository_id, each.url) for each in read(tmp_path)] == [("central", "https://work.example")]


def test_proxies_by_scheme_and_host(tmp_path: Path) -> None:
    proxy = (
        "<proxy><protocol>http</protocol><host>proxy.example</host><port>3128</port><username>a@b</username>"
        "<password>c:d</password><nonProxyHosts>localhost|*.inside</nonProxyHosts></proxy>"
    )
    settings(tmp_path, f"<proxies>{proxy}</proxies>")
    assert [each.proxy for each in read(tmp_path)] == ["http://a%40b:c%3Ad@proxy.example:3128"]
    mirror = MIRROR.format("near", "*", "https://maven.inside")
    settings(tmp_path, f"<proxies>{proxy}</proxies><mirrors>{mirror}</mirrors>")
    assert [each.proxy for each in read(tmp_path)] == [""]


def test_settings_that_cannot_be_read_and_a_missing_home_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings(tmp_path, "")
    monkeypatch.setattr(Path, "read_bytes", lambda _: (_ for _ in ()).throw(PermissionError(13, "Permission denied")))
    with pytest.raises(InvalidRequestError, match=r"settings cannot be read file=.*settings\.xml reason=Permission"):
        read(tmp_path)

    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", no_home)
    with pytest.raises(InvalidRequestError, match="there is none: set HOME"):
        settings_of({"PATH": ""})


def test_settings_that_only_maven_can_read_are_refused_by_a_sentence(tmp_path: Path) -> None:
    server = "<server><id>central</id><username>ann</username><password>{COQLCE6DU6GtcS5P=}</password></server>"
    settings(tmp_path, f"<servers>{server}</servers>")
    with pytest.raises(InvalidRequestError, match="encrypted; only Maven can read it server=central"):
        read(tmp_path)
    (tmp_path / ".m2" / "settings.xml").write_text("<settings>")
    with pytest.raises(InvalidRequestError, match=r"Maven's settings are no XML file=.*settings\.xml"):
        read(tmp_path)
