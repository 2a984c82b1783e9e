"""JobFiles: the directory of a job, on any file system of Hadoop: a local directory, hdfs://, s3a://.

All calls go through the session's JVM, with the session's settings, as the writes of rows do.

Rules
  - A file that `create` made is whole from the moment that it has its name, and is never written again: so nothing here
    depends on replacing a file in one step, which object stores and Hadoop's local checksums do not do.
  - `move` may be repeated after a crash at any point. A rename gives the target its name when it is complete, on
    every one of these file systems (on an object store it is a copy and a delete), so a target that is there is whole.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from thermocline.remoting.errors import CorruptDataError, UnavailableError
from thermocline.spark.connector.s3a_connector import connector_error, hadoop_of, java_causes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_TEMPORARY = ".tmp-"


class JobFiles:
    """A directory; all names are relative to it, with `/` between their parts.

    Every method raises UnavailableError when the file system fails or refuses, and InvalidRequestError when the session
    has no s3a connector that it needs.
    """

    def __init__(self, spark: SparkSession, directory: str) -> None:
        jvm: Any = spark._jvm
        self._path_class: Any = jvm.org.apache.hadoop.fs.Path
        configuration = spark._jsparkSession.sessionState().newHadoopConf()
        self._jvm = jvm
        with self._translated(directory):
            path = self._path_class(directory)
            self._files: Any = path.getFileSystem(configuration)
            self._root: Any = self._files.makeQualified(path)
        self.directory = directory
        """As it was given."""

    def url(self, name: str = "") -> str:
        """The full name, for Spark."""
        return str(self._path(name).toString())

    def has(self, name: str = "") -> bool:
        """Whether there is such a file or directory."""
        with self._translated(self.directory):
            return bool(self._files.exists(self._path(name)))

    def names(self, name: str = "") -> list[str]:
        """Return the direct entries of a directory, sorted; nothing when it is not there."""
        with self._translated(self.directory):
            if not self._files.exists(self._path(name)):
                return []
            return sorted(str(status.getPath().getName()) for status in self._files.listStatus(self._path(name)))

    def files(self, name: str) -> list[str]:
        """Every file at any depth in a directory, relative to it, sorted."""
        with self._translated(self.directory):
            base = str(self._path(name).toUri().getPath()).rstrip("/") + "/"
            found = []
            listing = self._files.listFiles(self._path(name), True)
            while listing.hasNext():
                path = str(listing.next().getPath().toUri().getPath())
                assert path.startswith(base)
                found.append(path.removeprefix(base))
        return sorted(found)

    def read(self, name: str) -> bytes | None:
        """A whole file; None when it is not there."""
        with self._translated(self.directory):
            if not self._files.exists(self._path(name)):
                return None
            stream = self._files.open(self._path(name))
            try:
                return bytes(stream.readAllBytes())
            finally:
                stream.close()

    def create(self, name: str, data: bytes) -> None:
        """Make a file, unless there is one of that name, which then stays as it is."""
        if self.has(name):
            return
        folder, _, last = name.rpartition("/")
        temporary = f"{folder}/{_TEMPORARY}{uuid.uuid4().hex}-{last}".lstrip("/")
        with self._translated(self.directory):
            stream = self._files.create(self._path(temporary), False)
            try:
                stream.write(bytearray(data))
            finally:
                stream.close()
        self.move(temporary, name)

    def move(self, source: str, target: str) -> None:
        """Give a file another name, or do nothing when that was done before.

        Raises:
            CorruptDataError: There is neither the file nor one of the other name.
        """
        with self._translated(self.directory):
            is_there = bool(self._files.exists(self._path(target)))
            if is_there:
                self._files.delete(self._path(source), False)
                return
            if not self._files.exists(self._path(source)):
                raise CorruptDataError("a file that this job has written is gone", file=source, output=self.directory)
            self._files.mkdirs(self._path(target).getParent())
            if not self._files.rename(self._path(source), self._path(target)):
                raise UnavailableError("a file cannot be renamed", file=source, target=target, output=self.directory)

    def delete(self, name: str) -> None:
        """Delete a file or a directory with all that is in it, if it is there."""
        with self._translated(self.directory):
            self._files.delete(self._path(name), True)

    def _path(self, name: str) -> Any:
        # As one text: Hadoop parses a separate child as a URL, and partition names may contain any character.
        return self._path_class(f"{self._root.toString()}/{name}") if name else self._root

    @contextmanager
    def _translated(self, directory: str) -> Iterator[None]:
        """Java's exceptions as ours: one sentence, no stack."""
        from py4j.protocol import Py4JJavaError

        try:
            yield
        except Py4JJavaError as error:
            names, texts = java_causes(error)
            of_connector = connector_error(hadoop_of(self._jvm), names, texts)
            if of_connector is not None:
                raise of_connector from error
            reason = str(error.java_exception.toString()).partition("\n")[0]
            raise UnavailableError("the job's directory cannot be used", directory=directory, reason=reason) from error
