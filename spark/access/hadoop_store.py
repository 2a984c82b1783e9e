"""HadoopObjectStore: a cold tier read through Spark's own Hadoop file system, by py4j, on the driver.

For `engine="s3a"`: whatever reaches the bucket is s3a with the session's settings, and no S3 library of Python.
Catalogs and indexes are small and few; each call costs some milliseconds of py4j and its bytes pass the driver's JVM.
Reads only. Calls block in helper threads. Errors of s3a become those of the cold tier:

    FileNotFoundException                                   ObjectNotFoundError
    AccessDeniedException, a bucket that does not exist     ObjectStoreRefusedError
    EOFException                                            SegmentSizeError
    no connector, or one of another Hadoop                  InvalidRequestError, which names the artifact
    anything else                                           ObjectStoreUnavailableError: s3a has retried already
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from thermocline.remoting.errors import (
    MQError,
    ObjectNotFoundError,
    ObjectStoreUnavailableError,
    SegmentSizeError,
    UnsupportedRequestError,
)
from thermocline.spark.connector.s3a_connector import connector_error, hadoop_of, java_causes
from thermocline.tiered.objects import (
    Data,
    ObjectInfo,
    ObjectStoreRefusedError,
    ObjectSuffix,
    SegmentOffset,
    masked_url,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Answer = TypeVar("Answer")

_NOT_FOUND = ("java.io.FileNotFoundException",)
_REFUSED = (
    "java.nio.file.AccessDeniedException",
    "org.apache.hadoop.security.AccessControlException",
    "org.apache.hadoop.fs.s3a.UnknownStoreException",
    "org.apache.hadoop.fs.s3a.AWSBadRequestException",
    "org.apache.hadoop.fs.s3a.auth.NoAuthWithAWSException",
    "org.apache.hadoop.fs.UnsupportedFileSystemException",
)
_TOO_SHORT = ("java.io.EOFException", "org.apache.hadoop.fs.s3a.RangeNotSatisfiableEOFException")
_LAST_CHARACTER = "\U0010ffff"


class HadoopObjectStore:
    """See the module's header; verbs of ObjectStore that write raise UnsupportedRequestError."""

    def __init__(self, spark: SparkSession, url: str) -> None:
        self._url = url.rstrip("/")
        self._jvm: Any = spark._jvm
        self._settings: Any = spark._jsparkSession.sessionState().newHadoopConf()

    def path_of(self, key: str) -> str:
        """How Hadoop and Spark spell the object's place."""
        path = self._jvm.org.apache.hadoop.fs.Path(f"{self._url}/{key}")
        return str(self._file_system().makeQualified(path).toString())

    async def get(self, key: str) -> bytes:
        """See ObjectStore."""
        return await self._run(key, lambda: self._read(key, None, None))

    async def get_range(self, key: str, *, start: SegmentOffset, end: SegmentOffset) -> bytes:
        """See ObjectStore."""
        data = await self._run(key, lambda: self._read(key, start, end - start))
        if len(data) < end - start:
            raise SegmentSizeError("the object ends before the range", key=key, start=start, end=end)
        return data

    async def get_suffix(self, key: str, *, size_bytes: int) -> ObjectSuffix:
        """See ObjectStore."""
        whole_bytes = (await self.head(key)).size_bytes
        start = max(0, whole_bytes - size_bytes)
        data = await self._run(key, lambda: self._read(key, start, whole_bytes - start))
        return ObjectSuffix(data=data, size_bytes=whole_bytes)

    async def head(self, key: str) -> ObjectInfo:
        """See ObjectStore."""
        status = await self._run(key, lambda: self._file_system().getFileStatus(self._path(key)))
        return _info(key, status)

    async def list(self, prefix: str, *, start_after: str = "") -> AsyncIterator[ObjectInfo]:
        """See ObjectStore. Folder by folder, those left out that lie before `start_after`."""
        waiting = [prefix[: prefix.rfind("/") + 1]]
        found: dict[str, Any] = {}
        while waiting:
            key = waiting.pop()
            if key in found:
                if key > start_after:
                    yield _info(key, found.pop(key))
                continue
            inside: list[str] = []
            for status in await self._run(key, partial(self._children, key)):
                child = f"{key}{status.getPath().getName()}"
                child += "/" if status.isDirectory() else ""
                is_wanted = child.startswith(prefix) or (child.endswith("/") and prefix.startswith(child))
                if not is_wanted or f"{child}{_LAST_CHARACTER if child.endswith('/') else ''}" <= start_after:
                    continue
                inside.append(child)
                if not child.endswith("/"):
                    found[child] = status
            waiting += sorted(inside, reverse=True)

    async def put(self, key: str, data: Data) -> None:
        """Raise: the store is read-only."""
        _refuse_to_write(key)

    async def create_if_absent(self, key: str, data: Data) -> None:
        """Raise: the store is read-only."""
        _refuse_to_write(key)

    async def delete(self, key: str) -> None:
        """Raise: the store is read-only."""
        _refuse_to_write(key)

    async def delete_many(self, keys: Iterable[str]) -> None:
        """Raise: the store is read-only."""
        _refuse_to_write(" ".join(keys))

    async def remove_incomplete(self, prefix: str) -> int:
        """Raise: the store is read-only."""
        _refuse_to_write(prefix)

    async def close(self) -> None:
        """Nothing: the file system is Hadoop's, which keeps it for others."""

    def _path(self, key: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(f"{self._url}/{key}" if key else self._url)

    def _file_system(self) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(self._url).getFileSystem(self._settings)

    def _read(self, key: str, start: int | None, size_bytes: int | None) -> bytes:
        stream = self._file_system().open(self._path(key))
        try:
            if start is None or size_bytes is None:
                return bytes(stream.readAllBytes())
            stream.seek(start)
            return bytes(stream.readNBytes(size_bytes))
        finally:
            stream.close()

    def _children(self, folder: str) -> tuple[Any, ...]:
        """Return the entries of a folder; nothing where there is none."""
        try:
            return tuple(self._file_system().listStatus(self._path(folder.rstrip("/"))))
        except self._jvm_error() as error:
            if _class_name(error) in _NOT_FOUND:
                return ()
            raise

    async def _run(self, key: str, call: Callable[[], Answer]) -> Answer:
        try:
            return await asyncio.to_thread(call)
        except self._jvm_error() as error:
            raise self._translated(key, error) from error

    def _translated(self, key: str, error: Any) -> MQError:
        """The cold tier's error for one of Hadoop's, by the class of the cause that has one."""
        names, texts = java_causes(error)
        of_connector = connector_error(hadoop_of(self._jvm), names, texts)
        if of_connector is not None:
            return of_connector
        place = {"key": key, "url": masked_url(self._url), "reason": " ".join(texts[0].split())[:300]}
        if any(name in _NOT_FOUND for name in names):
            return ObjectNotFoundError("no such object", **place)
        if any(name in _TOO_SHORT for name in names):
            return SegmentSizeError("the object ends before the range", **place)
        if any(name in _REFUSED for name in names):
            return ObjectStoreRefusedError("the object store refuses s3a", **place)
        return ObjectStoreUnavailableError("the object store gave s3a no answer", **place)

    @staticmethod
    def _jvm_error() -> type[Exception]:
        from py4j.protocol import Py4JJavaError

        kind: type[Exception] = Py4JJavaError
        return kind


def _class_name(error: Any) -> str:
    return str(error.java_exception.getClass().getName())


def _info(key: str, status: Any) -> ObjectInfo:
    return ObjectInfo(key=key, size_bytes=int(status.getLen()), etag="", modified_ms=int(status.getModificationTime()))


def _refuse_to_write(key: str) -> NoReturn:
    raise UnsupportedRequestError("a cold tier is only read through Hadoop", key=key)
