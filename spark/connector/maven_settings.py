"""Where Maven gets artifacts from on this machine, read from its settings files.

The user's ~/.m2/settings.xml counts before that of the Maven installation (`conf/settings.xml`, by MAVEN_HOME or `mvn`
on the PATH); either may be absent. Honoured: localRepository, offline, mirrors, servers (user name and password),
proxies, repositories of active profiles, `${env.NAME}` and `${user.home}`. A password that `mvn --encrypt-password` has
made can be read by Maven alone, and is refused where it would be used.
Source: https://maven.apache.org/settings.html
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, urlsplit
from xml.etree import ElementTree

from thermocline.remoting.errors import InvalidRequestError

CENTRAL_ID = "central"
LOOPBACK_HOSTS = ("localhost", "127.0.0.1", "::1")
_VARIABLE = re.compile(r"\$\{([^}]+)\}")
_ENCRYPTED = re.compile(r"\{.+\}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Repository:
    """A repository to fetch artifacts from; a mirror may have replaced the original one."""

    repository_id: str
    url: str
    user: str = ""
    password: str = ""
    proxy: str | None = None
    """The URL of the proxy in front of it; "": none; None: the one that the environment names, if any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MavenSettings:
    """`repositories` in the order in which they are asked."""

    local_repository: Path
    repositories: tuple[Repository, ...]
    is_offline: bool = False


def read_maven_settings(environment: Mapping[str, str], *, central_url: str) -> MavenSettings:
    """What Maven would do for a project without repositories of its own. `central_url`: of Maven's central repository.

    Raises:
        InvalidRequestError: A settings file is no XML, cannot be read, or needs what only Maven can read; there is no
            home directory.
    """
    home = _home(environment)
    files = [home / ".m2" / "settings.xml", *_files_of_installation(environment)]
    roots = [_parsed(file) for file in files if file.is_file()]
    variables = {f"env.{name}": value for name, value in environment.items()} | {"user.home": str(home)}

    def text(element: ElementTree.Element, name: str) -> str:
        found = (element.findtext(name) or "").strip()
        return _VARIABLE.sub(lambda match: variables.get(match[1], match[0]), found)

    def all_of(path: str) -> list[ElementTree.Element]:
        return [element for root in roots for element in root.iterfind(path)]

    def first(name: str) -> str:
        return next((value for root in roots if (value := text(root, name))), "")

    asked = [*_of_active_profiles(roots, text), (CENTRAL_ID, central_url)]
    mirrors = [(text(each, "mirrorOf"), text(each, "id"), text(each, "url")) for each in all_of("mirrors/mirror")]
    servers = {text(each, "id"): each for each in reversed(all_of("servers/server"))}
    proxies = [each for each in all_of("proxies/proxy") if text(each, "active") != "false"]
    repositories: dict[str, Repository] = {}
    for repository_id, url in asked:
        for pattern, mirror_id, mirror_url in mirrors:
            if is_mirrored(pattern, repository_id, url):
                repository_id, url = mirror_id, mirror_url
                break
        if repository_id not in repositories:
            server = servers.get(repository_id)
            repositories[repository_id] = Repository(
                repository_id=repository_id,
                url=url.rstrip("/"),
                user="" if server is None else text(server, "username"),
                password="" if server is None else _readable(text(server, "password"), of=repository_id),
                proxy=_proxy_for(url, proxies, text),
            )
    return MavenSettings(
        local_repository=Path(first("localRepository") or home / ".m2" / "repository"),
        repositories=tuple(repositories.values()),
        is_offline=first("offline") == "true",
    )


def is_mirrored(pattern: str, repository_id: str, url: str) -> bool:
    """Whether `mirrorOf` names the repository: ids, `*`, `external:*`, `external:http:*`; `!id` leaves one out."""
    parts = urlsplit(url)
    is_external = parts.scheme != "file" and parts.hostname not in LOOPBACK_HOSTS
    is_named = False
    for word in (word.strip() for word in pattern.split(",")):
        if word == f"!{repository_id}":
            return False
        is_named = is_named or (
            word in ("*", repository_id)
            or (word == "external:*" and is_external)
            or (word == "external:http:*" and is_external and parts.scheme == "http")
        )
    return is_named


Text = Callable[[ElementTree.Element, str], str]


def _files_of_installation(environment: Mapping[str, str]) -> Iterator[Path]:
    homes = [environment[name] for name in ("MAVEN_HOME", "M2_HOME") if environment.get(name)]
    command = shutil.which("mvn", path=environment.get("PATH"))
    if not homes and command is not None:
        homes.append(str(Path(command).resolve().parent.parent))
    for home in homes[:1]:
        yield Path(home) / "conf" / "settings.xml"


def _home(environment: Mapping[str, str]) -> Path:
    try:
        return Path(environment.get("HOME") or Path.home())
    except RuntimeError as error:  # a user without an entry, as containers have
        raise InvalidRequestError("Maven's settings are in the home directory, and there is none: set HOME") from error


def _parsed(file: Path) -> ElementTree.Element:
    """The root of a file, its names without namespace."""
    try:
        root = ElementTree.fromstring(file.read_bytes())
    except ElementTree.ParseError as error:
        raise InvalidRequestError("Maven's settings are no XML", file=file, reason=error) from error
    except OSError as error:
        raise InvalidRequestError("Maven's settings cannot be read", file=file, reason=error.strerror) from error
    for element in root.iter():
        element.tag = element.tag.rpartition("}")[2]
    return root


def _of_active_profiles(roots: Iterable[ElementTree.Element], text: Text) -> Iterator[tuple[str, str]]:
    """Id and URL of the repositories that profiles add: those active by name or by default."""
    for root in roots:
        named = {(each.text or "").strip() for each in root.iterfind("activeProfiles/activeProfile")}
        for profile in root.iterfind("profiles/profile"):
            if text(profile, "id") in named or text(profile, "activation/activeByDefault") == "true":
                for each in profile.iterfind("repositories/repository"):
                    yield text(each, "id"), text(each, "url")


def _readable(password: str, *, of: str) -> str:
    if _ENCRYPTED.fullmatch(password):
        raise InvalidRequestError("the password in Maven's settings is encrypted; only Maven can read it", server=of)
    return password


def _proxy_for(url: str, proxies: Iterable[ElementTree.Element], text: Text) -> str | None:
    """The URL of the proxy for a repository; "" where the settings leave its host out; None where they name none."""
    parts = urlsplit(url)
    by_scheme: dict[str, ElementTree.Element] = {}
    for proxy in proxies:
        by_scheme.setdefault(text(proxy, "protocol") or "http", proxy)
    found = by_scheme.get(parts.scheme, by_scheme.get("http") if parts.scheme == "https" else None)
    if found is None:
        return None
    for pattern in filter(None, text(found, "nonProxyHosts").split("|")):
        if re.fullmatch(re.escape(pattern).replace(r"\*", ".*"), parts.hostname or ""):
            return ""
    user, password = text(found, "username"), _readable(text(found, "password"), of="proxy")
    login = f"{quote(user, safe='')}:{quote(password, safe='')}@" if user else ""
    return f"http://{login}{text(found, 'host')}:{text(found, 'port') or '8080'}"
