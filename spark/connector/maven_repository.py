"""Artifacts by Maven coordinates: from the local repository, else from the repositories that the settings name.

What is fetched is kept in the local repository, in Maven's layout, under its final name only when it is whole. Every
artifact's SHA-256 is known beforehand, and checked whether it was fetched or found.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import http.client
import os
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from pathlib import Path

from thermocline.remoting.errors import CorruptDataError, InvalidRequestError, MQError, UnavailableError
from thermocline.spark.connector.maven_settings import MavenSettings, Repository

CONCURRENCY_MAX = 4
TIMEOUT_S = 60
ARTIFACT_BYTES_MAX = 256 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Artifact:
    """One jar and what it has to be."""

    group: str
    name: str
    version: str
    sha256: str

    @property
    def coordinates(self) -> str:
        """As Maven and Spark write them."""
        return f"{self.group}:{self.name}:{self.version}"

    @property
    def path(self) -> str:
        """Its place in every repository."""
        return f"{self.group.replace('.', '/')}/{self.name}/{self.version}/{self.name}-{self.version}.jar"


def find_artifacts(artifacts: Iterable[Artifact], settings: MavenSettings) -> list[Path]:
    """The artifacts that are in the local repository as they have to be; sends nothing. Raises InvalidRequestError."""
    places = [(artifact, settings.local_repository / artifact.path) for artifact in artifacts]
    return [place for artifact, place in places if _is_whole(artifact, place)]


def fetch_artifacts(artifacts: Iterable[Artifact], settings: MavenSettings) -> list[Path]:
    """The jars' places in the local repository, in the order given, fetched where they are missing.

    Raises:
        InvalidRequestError: No repository has one of them, one refuses, the settings say that Maven is offline, or the
            local repository cannot be read or written.
        UnavailableError: A repository gave no answer.
        CorruptDataError: What a repository gave has another checksum.
    """
    with ThreadPoolExecutor(CONCURRENCY_MAX) as pool:
        return list(pool.map(lambda artifact: _ensure(artifact, settings), artifacts))


def _ensure(artifact: Artifact, settings: MavenSettings) -> Path:
    place = settings.local_repository / artifact.path
    if _is_whole(artifact, place):
        return place
    if settings.is_offline:
        raise InvalidRequestError("Maven's settings say offline", artifact=artifact.coordinates)
    failure: MQError | None = None
    for repository in settings.repositories:
        try:
            data = _get(repository, artifact)
        except MQError as error:
            failure = failure or error
            continue
        if data is not None:
            return _keep(artifact, place, data, repository)
    if failure is not None:
        raise failure
    asked = " ".join(repository.repository_id for repository in settings.repositories)
    raise InvalidRequestError("no Maven repository has this artifact", artifact=artifact.coordinates, asked=asked)


def _is_whole(artifact: Artifact, place: Path) -> bool:
    with _in_local_repository(place):
        return place.is_file() and hashlib.sha256(place.read_bytes()).hexdigest() == artifact.sha256


@contextlib.contextmanager
def _in_local_repository(place: Path) -> Iterator[None]:
    """Translate what the file system raises: a home directory may be read-only, or another user's."""
    try:
        yield
    except OSError as error:
        raise InvalidRequestError(
            "Maven's local repository cannot be used", file=place, reason=error.strerror or str(error)
        ) from error


def _get(repository: Repository, artifact: Artifact) -> bytes | None:
    """What the repository has of it; None when it has none."""
    context = {"repository": repository.repository_id, "artifact": artifact.coordinates}
    try:
        request = urllib.request.Request(f"{repository.url}/{artifact.path}", headers={"User-Agent": "thermocline"})
    except ValueError as error:
        raise InvalidRequestError("the URL of the Maven repository is none", **context) from error
    if repository.user:
        login = base64.b64encode(f"{repository.user}:{repository.password}".encode()).decode()
        request.add_unredirected_header("Authorization", f"Basic {login}")
    handlers = []
    if repository.proxy is not None:
        proxies = {"http": repository.proxy, "https": repository.proxy} if repository.proxy else {}
        handlers.append(urllib.request.ProxyHandler(proxies))
    try:
        with urllib.request.build_opener(*handlers).open(request, timeout=TIMEOUT_S) as answer:
            data: bytes = answer.read(ARTIFACT_BYTES_MAX)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code in (HTTPStatus.NOT_FOUND, HTTPStatus.GONE):
            return None
        if error.code in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN, HTTPStatus.PROXY_AUTHENTICATION_REQUIRED):
            raise InvalidRequestError("the Maven repository refuses", **context, status=error.code) from error
        raise UnavailableError("the Maven repository fails", **context, status=error.code) from error
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", error)
        raise UnavailableError("the Maven repository gives no answer", **context, reason=reason) from error
    return data


def _keep(artifact: Artifact, place: Path, data: bytes, repository: Repository) -> Path:
    if hashlib.sha256(data).hexdigest() != artifact.sha256:
        raise CorruptDataError(
            "the Maven repository gave an artifact with another checksum",
            repository=repository.repository_id,
            artifact=artifact.coordinates,
        )
    with contextlib.ExitStack() as cleanup:
        cleanup.enter_context(_in_local_repository(place))
        place.parent.mkdir(parents=True, exist_ok=True)
        handle, partial_name = tempfile.mkstemp(dir=place.parent, prefix=f".{place.name}.")
        cleanup.callback(partial(Path(partial_name).unlink, missing_ok=True))
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        Path(partial_name).chmod(0o644)
        Path(partial_name).replace(place)
    return place
