"""One S3 server on a free loopback port, for development and tests.

    with start_server("versitygw", directory) as server:
        server.make_bucket("cold")
        ... server.endpoint, server.access_key, server.secret_key, server.region ...
        server.kill()        # as a crash would
        server.restart()     # same port, same data (if the kind keeps any: `keeps_data`)

The server dies with the process that started it and is installed first when that has not happened yet.
"""

from __future__ import annotations

import contextlib
import http.client
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from thermocline.localstack.cache_directory import default_cache_directory
from thermocline.localstack.child_process import ChildProcess
from thermocline.localstack.errors import LocalStackError, ServerStartError
from thermocline.localstack.localstack import LocalStackRecipe
from thermocline.localstack.loopback_port import LOOPBACK, free_port, is_listening
from thermocline.localstack.minio import MinioRecipe
from thermocline.localstack.moto import MotoRecipe
from thermocline.localstack.rclone import RcloneRecipe
from thermocline.localstack.s3s_fs import S3sFsRecipe
from thermocline.localstack.server_recipe import Launch, ServerRecipe
from thermocline.localstack.versitygw import VersitygwRecipe

RECIPES: dict[str, ServerRecipe] = {
    recipe.kind: recipe for recipe in (VersitygwRecipe(), MinioRecipe(), LocalStackRecipe(), MotoRecipe())
}
SERVER_KINDS = tuple(RECIPES)
UNFIT_RECIPES: dict[str, ServerRecipe] = {recipe.kind: recipe for recipe in (RcloneRecipe(), S3sFsRecipe())}
"""Servers that let two writers commit: for tests of the fencing check, and of code that works without fencing."""
ACCESS_KEY = "thermocline"
SECRET_KEY = "thermocline+secret/key"
"""Real ones often hold these characters, which not every way of writing a URL keeps."""
REGION = "us-east-1"
# A free port may be taken before the server binds it: that many others are tried.
START_ATTEMPTS_MAX = 3
AUTHORITY_FILE = "authority.pem"


class S3Server:
    """A running server; made by `start_server`."""

    access_key = ACCESS_KEY
    secret_key = SECRET_KEY
    region = REGION

    def __init__(
        self,
        recipe: ServerRecipe,
        *,
        executable: Path,
        data_directory: Path,
        certificates_directory: Path | None = None,
    ) -> None:
        """Start it and wait until it serves; `certificates_directory`: see `start_server`.

        Raises:
            ServerStartError: It did not.
        """
        self._recipe = recipe
        self._executable = executable
        self._data_directory = data_directory
        self._certificates = certificates_directory
        (data_directory / "objects").mkdir(parents=True, exist_ok=True)
        (data_directory / "scratch" / "empty").mkdir(parents=True, exist_ok=True)
        for attempt in range(1, START_ATTEMPTS_MAX + 1):
            self.port = free_port()
            try:
                self._process = self._start()
            except ServerStartError as error:
                if attempt == START_ATTEMPTS_MAX or "address already in use" not in str(error).lower():
                    raise
            else:
                return

    @property
    def kind(self) -> str:
        """Which server it is: a key of `RECIPES` or `UNFIT_RECIPES`."""
        return self._recipe.kind

    @property
    def keeps_data(self) -> bool:
        """Whether objects survive `kill()` and `restart()`."""
        return self._recipe.keeps_data

    @property
    def endpoint(self) -> str:
        """The URL that S3 clients are given."""
        return f"{'http' if self._certificates is None else 'https'}://{LOOPBACK}:{self.port}"

    @property
    def authority(self) -> Path | None:
        """The file of the authority that its clients have to trust; None when it serves without TLS."""
        return None if self._certificates is None else self._certificates / AUTHORITY_FILE

    @property
    def process_id(self) -> int:
        """The process that serves now."""
        return self._process.process_id

    def client(self) -> Any:
        """A botocore S3 client for this server, for setting up and looking around; the caller closes it."""
        import botocore.config
        import botocore.session

        return botocore.session.get_session().create_client(
            "s3",
            endpoint_url=self.endpoint,
            region_name=self.region,
            aws_access_key_id=self.access_key,
            aws_secret_access_key=self.secret_key,
            verify=None if self.authority is None else str(self.authority),
            config=botocore.config.Config(
                s3={"addressing_style": "path"},
                request_checksum_calculation="when_required",
                response_checksum_validation="when_required",
                retries={"max_attempts": 3, "mode": "standard"},
            ),
        )

    def make_bucket(self, name: str) -> str:
        """Create the bucket and return its name."""
        client = self.client()
        try:
            client.create_bucket(Bucket=name)
        finally:
            client.close()
        return name

    def kill(self) -> None:
        """End it without warning, as a crash would."""
        self._process.kill()

    def stop(self) -> None:
        """End it in order."""
        self._process.stop()

    def restart(self) -> None:
        """Start it again on the same port and data; it is killed first if it still runs.

        Raises:
            ServerStartError: It did not come back.
        """
        self._process.kill()
        self._process = self._start()

    def _start(self) -> ChildProcess:
        launch = Launch(
            executable=self._executable,
            port=self.port,
            objects_directory=(self._data_directory / "objects").resolve(),
            scratch_directory=(self._data_directory / "scratch").resolve(),
            access_key=self.access_key,
            secret_key=self.secret_key,
            region=self.region,
            certificates_directory=self._certificates,
        )
        process = ChildProcess(
            self._recipe.command(launch),
            log_path=self._data_directory / "server.log",
            working_directory=launch.scratch_directory / "empty",
            environment=self._recipe.environment(launch),
        )
        process.wait_until(self._serves, timeout_s=self._recipe.ready_timeout_s)
        return process

    def _connection(self) -> http.client.HTTPConnection:
        if self.authority is None:
            return http.client.HTTPConnection(LOOPBACK, self.port, timeout=5.0)
        context = ssl.create_default_context(cafile=str(self.authority))
        return http.client.HTTPSConnection(LOOPBACK, self.port, timeout=5.0, context=context)

    def _serves(self) -> bool:
        if self._recipe.ready_path is None:
            return is_listening(self.port)
        connection = self._connection()
        try:
            connection.request("GET", self._recipe.ready_path)
            return connection.getresponse().status == http.HTTPStatus.OK
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()


@contextlib.contextmanager
def start_server(
    kind: str,
    data_directory: Path,
    *,
    cache_directory: Path | None = None,
    certificates_directory: Path | None = None,
) -> Iterator[S3Server]:
    """Start a server of this kind over `data_directory`; it is stopped when the block ends.

    `certificates_directory`: `public.crt` and `private.key` to serve TLS with, and `authority.pem`, who signed.

    Raises:
        ToolMissingError: This machine lacks what the server is built with.
        LocalStackError: It could not be built.
        ServerStartError: It did not start.
    """
    recipe = RECIPES.get(kind) or UNFIT_RECIPES.get(kind)
    if recipe is None:
        raise LocalStackError(f"there is no S3 server called {kind!r}: one of {', '.join(SERVER_KINDS)}")
    cache = cache_directory or default_cache_directory()
    if certificates_directory is not None and not recipe.takes_certificates:
        raise LocalStackError(f"{kind} is not started with TLS here")
    recipe.install(cache)
    server = S3Server(
        recipe,
        executable=recipe.executable(cache),
        data_directory=data_directory,
        certificates_directory=certificates_directory,
    )
    try:
        yield server
    finally:
        server.stop()
