"""S3ObjectStore: a bucket, through aiobotocore.

  - create_if_absent is a PUT with `If-None-Match: *`; 412 means that there is one, 409 that it is undecided: try again.
  - An object is one PUT up to `put_bytes_max`, above that a multipart upload.
  - Bodies carry Content-MD5 and are not signed themselves: their hash would be computed on the loop, and over TLS adds
    nothing. What is read back is checked by our own formats.
  - What holds history is put into `storage_class`; every object is encrypted by `sse`, in parts too.
  - Checksums of botocore's own are off ('when_required'): other stores answer them wrongly on ranges.
  - An upload of which the store takes nothing fails in time (`upload_body.py`); the client limits all other waiting.
  - No retries here: they are `wrappers/retrying.py`'s, which counts and bounds them.
Belongs to one event loop. At most `connections_max` requests are under way, others wait for a connection.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import ssl
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AbstractContextManager, AsyncExitStack
from typing import Any, TypeAlias

from aiobotocore.config import AioConfig
from botocore.exceptions import BotoCoreError

from thermocline.remoting.errors import (
    InvalidRequestError,
    ObjectNotFoundError,
    ObjectStoreUnavailableError,
    SegmentSizeError,
)
from thermocline.tiered.objects import (
    Data,
    ObjectInfo,
    ObjectStoreRefusedError,
    ObjectSuffix,
    SegmentOffset,
    check_key,
    run_all,
)
from thermocline.tiered.s3.orphaned_writes import pass_over_orphaned_writes
from thermocline.tiered.s3.s3_credentials import credentials_for, shared_session
from thermocline.tiered.s3.s3_errors import RETRY_CODES, translated
from thermocline.tiered.s3.s3_options import S3Options
from thermocline.tiered.s3.sent_requests import Listener, SentRequests
from thermocline.tiered.s3.upload_body import UploadBody, unless_stalled
from thermocline.tiered.segments import keeps_history

Uploads: TypeAlias = list[tuple[str, str]]
"""Key in the bucket and upload id."""

MIB = 1024 * 1024
DELETE_KEYS_MAX = 1000
NO_LISTING = frozenset({"ResponseMetadata", "RequestCharged"})
"""All that the client has of an answer without content. A listing has its name or says whether it is cut."""
NO_OBJECT = "the answer is no object"
INLINE_BYTES_MAX = 256 * 1024
"""Bodies up to this size are hashed and sent in place, larger ones by a helper thread and in pieces."""


class S3ObjectStore:
    """See the module's header and `object_store.py`. Made by `open`."""

    def __init__(self, options: S3Options, client: Any, stack: AsyncExitStack) -> None:
        self._options = options
        self._client = client
        self._stack = stack
        self._bucket = options.bucket
        self._prefix = f"{options.prefix.strip('/')}/" if options.prefix.strip("/") else ""

    @classmethod
    async def open(cls, options: S3Options) -> S3ObjectStore:
        """Make the client; sends no request.

        Raises:
            InvalidRequestError: `ca`, or what `AWS_CA_BUNDLE` names for an https endpoint, is no file of certificates;
                a profile that is named is not there, or what it says cannot be used.
        """
        try:
            return await cls._open(options)
        except BotoCoreError as error:
            reason = " ".join(f"{error}".split())
            raise InvalidRequestError("the S3 client cannot be set up", bucket=options.bucket, reason=reason) from error

    @classmethod
    async def _open(cls, options: S3Options) -> S3ObjectStore:
        authorities = options.ca
        if authorities is None and not (options.endpoint or "").lower().startswith("http://"):
            authorities = shared_session().get_config_variable("ca_bundle")
        if authorities is not None:
            _check_authorities(authorities)
        path_style = options.endpoint is not None if options.path_style is None else options.path_style
        credentials = await credentials_for(options)
        config = AioConfig(
            connect_timeout=options.connect_timeout_s,
            read_timeout=options.read_timeout_s,
            max_pool_connections=options.connections_max,
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
            retries={"total_max_attempts": 1, "mode": "standard"},
            s3={"addressing_style": "path" if path_style else "auto", "payload_signing_enabled": False},
            **credentials.config,
        )
        pass_over_orphaned_writes(asyncio.get_running_loop())
        stack = AsyncExitStack()
        region = options.region or ("us-east-1" if options.endpoint is not None else None)
        client = await stack.enter_async_context(
            credentials.session.create_client(
                "s3",
                region_name=region,
                endpoint_url=options.endpoint,
                verify=options.ca,
                config=config,
                **credentials.arguments,
            )
        )
        return cls(options, client, stack)

    @property
    def client(self) -> Any:
        """The client, for requests that are no verbs of an object store."""
        return self._client

    @property
    def bucket(self) -> str:
        """The bucket's name."""
        return self._bucket

    def tell_requests(self, listener: Listener) -> None:
        """Tell of each request that is sent from now on, just before it is; see `wrappers/metering.py`."""
        SentRequests(self._client, bucket=self._bucket, prefix=self._prefix, listener=listener)

    async def get(self, key: str) -> bytes:
        """See ObjectStore."""
        with self._translated(key):
            data, _size_bytes = await self._get(key)
            return data

    async def get_range(self, key: str, *, start: SegmentOffset, end: SegmentOffset) -> bytes:
        """See ObjectStore."""
        assert 0 <= start < end
        with self._translated(key):
            data, size_bytes = await self._get(key, Range=f"bytes={start}-{end - 1}")
        if len(data) != end - start:
            raise SegmentSizeError("the object ends before the range", key=key, end=end, size_bytes=size_bytes)
        return data

    async def get_suffix(self, key: str, *, size_bytes: int) -> ObjectSuffix:
        """See ObjectStore."""
        assert size_bytes > 0
        try:
            with self._translated(key):
                data, object_bytes = await self._get(key, Range=f"bytes=-{size_bytes}")
        except SegmentSizeError:
            # An empty object has no suffix to give; and some give none that is longer than the object.
            data = await self.get(key)
            return ObjectSuffix(data=data[-size_bytes:], size_bytes=len(data))
        return ObjectSuffix(data=data, size_bytes=object_bytes)

    async def head(self, key: str) -> ObjectInfo:
        """See ObjectStore."""
        try:
            with self._translated(key):
                answer = await self._client.head_object(Bucket=self._bucket, Key=self.full_key(key))
        except ObjectNotFoundError:
            # It has no body, so it may be a load balancer's. A GET tells.
            with contextlib.suppress(SegmentSizeError), self._translated(key):
                await self._get(key, Range="bytes=0-0")
            raise ObjectStoreUnavailableError("a HEAD finds no object, a GET does", key=key) from None
        _text_of(answer, "ETag", key, NO_OBJECT)
        size_bytes = answer.get("ContentLength")
        if size_bytes is None:
            raise ObjectStoreUnavailableError(NO_OBJECT, key=key, missing="ContentLength")
        return _info(key, answer, size_bytes=size_bytes)

    async def put(self, key: str, data: Data) -> None:
        """See ObjectStore."""
        with self._translated(key):
            if len(data) > self._options.put_bytes_max:
                await self._put_multipart(key, memoryview(data))
            else:
                await self._put(key, data)

    async def create_if_absent(self, key: str, data: Data) -> None:
        """See ObjectStore; one request, so at most `put_bytes_max`."""
        assert len(data) <= self._options.put_bytes_max
        with self._translated(key):
            await self._put(key, data, IfNoneMatch="*")

    async def list(self, prefix: str, *, start_after: str = "") -> AsyncIterator[ObjectInfo]:
        """See ObjectStore."""
        request: dict[str, Any] = {"Bucket": self._bucket, "Prefix": self._prefix + prefix}
        if start_after:
            request["StartAfter"] = self._prefix + start_after
        first_key = ""
        while True:
            with self._translated(prefix):
                answer = await self._client.list_objects_v2(**request)
            if answer.keys() <= NO_LISTING:
                # To take it for a listing without objects would pass over pins, ballots and state.
                raise ObjectStoreUnavailableError("the answer is no listing", key=prefix)
            items = answer.get("Contents", ())
            if items and items[0]["Key"] == first_key:
                # A store that passes over the token would be listed for ever.
                raise ObjectStoreUnavailableError("a listing begins again instead of going on", key=prefix)
            first_key = items[0]["Key"] if items else first_key
            for item in items:
                key = item["Key"].removeprefix(self._prefix)
                if key > start_after:
                    yield _info(key, item, size_bytes=item["Size"])
            if not answer.get("IsTruncated"):
                return
            token = _next_of(answer, "NextContinuationToken", prefix)
            if token == request.get("ContinuationToken"):
                raise ObjectStoreUnavailableError("a listing does not go on", key=prefix)
            request["ContinuationToken"] = token

    async def delete(self, key: str) -> None:
        """See ObjectStore."""
        with contextlib.suppress(ObjectNotFoundError), self._translated(key):
            await self._client.delete_object(Bucket=self._bucket, Key=self.full_key(key))

    async def delete_many(self, keys: Iterable[str]) -> None:
        """See ObjectStore."""
        waiting = list(keys)
        for start in range(0, len(waiting), DELETE_KEYS_MAX):
            batch = waiting[start : start + DELETE_KEYS_MAX]
            objects = [{"Key": self.full_key(key)} for key in batch]
            with self._translated(batch[0]):
                async with unless_stalled(self._options.stalled_s_max):
                    answer = await self._client.delete_objects(
                        Bucket=self._bucket, Delete={"Objects": objects, "Quiet": True}
                    )
            for failure in answer.get("Errors", ()):
                _raise_delete_failure(failure)

    async def remove_incomplete(self, prefix: str) -> int:
        """See ObjectStore: aborts multipart uploads."""
        wanted = self._prefix + prefix
        uploads = await self._uploads(wanted)
        if not uploads:
            # MinIO takes the prefix for a whole key, and lists uploads of a prefix only among all of them.
            uploads = [upload for upload in await self._uploads("") if upload[0].startswith(wanted)]
        with self._translated(prefix):
            for full_key, upload_id in uploads:
                await self._abort(full_key, upload_id)
        return len(uploads)

    async def close(self) -> None:
        """See ObjectStore."""
        await self._stack.aclose()

    def full_key(self, key: str) -> str:
        """The full key in the bucket."""
        check_key(key)
        return self._prefix + key

    def kept_as(self, key: str) -> dict[str, str]:
        """The parameters for storage class and encryption of a put, in one request or in parts."""
        options = self._options
        parameters = {
            "StorageClass": options.storage_class if keeps_history(key) else None,
            "ServerSideEncryption": options.sse,
            "SSEKMSKeyId": options.sse_kms_key_id,
        }
        return {name: value for name, value in parameters.items() if value is not None}

    def _translated(self, key: str) -> AbstractContextManager[None]:
        return translated(key, endpoint=self._client.meta.endpoint_url, bucket=self._bucket)

    async def _get(self, key: str, **extra: Any) -> tuple[bytes, int]:
        """The body of a GET, all of it, and the size of the object."""
        answer = await self._client.get_object(Bucket=self._bucket, Key=self.full_key(key), **extra)
        async with answer["Body"] as body:
            data: bytes = await body.read()
        _text_of(answer, "ETag", key, NO_OBJECT)
        if len(data) != answer.get("ContentLength", len(data)):  # some do not say, and send chunks, whose end shows
            raise ObjectStoreUnavailableError("the answer was cut short", key=key, size_bytes=len(data))
        content_range = answer.get("ContentRange", "")
        total = content_range.rpartition("/")[2]
        return data, int(total) if total.isdigit() else len(data)

    async def _put(self, key: str, data: Data, **extra: Any) -> None:
        digest = await _digest(data)
        async with unless_stalled(self._options.stalled_s_max) as goes_on:
            answer = await self._client.put_object(
                Bucket=self._bucket,
                Key=self.full_key(key),
                Body=_body(data, goes_on),
                ContentMD5=digest,
                ContentLength=len(data),
                **self.kept_as(key),
                **extra,
            )
        _etag_of(answer, key)

    async def _put_multipart(self, key: str, data: memoryview) -> None:
        full_key = self.full_key(key)
        answer = await self._client.create_multipart_upload(Bucket=self._bucket, Key=full_key, **self.kept_as(key))
        upload_id = _text_of(answer, "UploadId", key, "the answer does not name the upload that it begins")

        async def upload(number: int, part: memoryview) -> dict[str, Any]:
            digest = await _digest(part)
            async with unless_stalled(self._options.stalled_s_max) as goes_on:
                answer = await self._client.upload_part(
                    Bucket=self._bucket,
                    Key=full_key,
                    UploadId=upload_id,
                    PartNumber=number,
                    Body=_body(part, goes_on),
                    ContentMD5=digest,
                    ContentLength=len(part),
                )
            return {"PartNumber": number, "ETag": _etag_of(answer, key)}

        size_bytes = self._options.part_bytes
        try:
            parts = await run_all(
                [
                    upload(number, data[start : start + size_bytes])
                    for number, start in enumerate(range(0, len(data), size_bytes), start=1)
                ],
                concurrency_max=self._options.part_concurrency_max,
            )
            answer = await self._client.complete_multipart_upload(
                Bucket=self._bucket, Key=full_key, UploadId=upload_id, MultipartUpload={"Parts": parts}
            )
            _etag_of(answer, key)
        except BaseException:
            # Best effort: what is left of it is aborted when a writer next opens the prefix.
            with contextlib.suppress(ObjectNotFoundError, ObjectStoreUnavailableError), self._translated(key):
                await asyncio.shield(self._abort(full_key, upload_id))
            raise

    async def _uploads(self, full_prefix: str) -> Uploads:
        """Full key and id of every multipart upload under way whose key starts like this."""
        found: Uploads = []
        request: dict[str, Any] = {"Bucket": self._bucket, "Prefix": full_prefix}
        with self._translated(full_prefix):
            while True:
                answer = await self._client.list_multipart_uploads(**request)
                found.extend((upload["Key"], upload["UploadId"]) for upload in answer.get("Uploads", ()))
                if not answer.get("IsTruncated"):
                    return [upload for upload in found if upload[0].startswith(full_prefix)]
                request["KeyMarker"] = _next_of(answer, "NextKeyMarker", full_prefix)
                request["UploadIdMarker"] = _next_of(answer, "NextUploadIdMarker", full_prefix)

    async def _abort(self, full_key: str, upload_id: str) -> None:
        await self._client.abort_multipart_upload(Bucket=self._bucket, Key=full_key, UploadId=upload_id)


def _check_authorities(path: str) -> None:
    """The client would say nothing before its first request, and then not which file it was."""
    try:
        ssl.create_default_context(cafile=path)
    except OSError as error:  # ssl.SSLError, what is no certificate, is one
        reason = error.strerror if error.errno and not isinstance(error, ssl.SSLError) else "no PEM certificate in it"
        raise InvalidRequestError("the file of authorities cannot be used", ca=path, reason=reason) from error


async def _digest(data: Data) -> str:
    """The Content-MD5 of a body."""
    return _md5(data) if len(data) <= INLINE_BYTES_MAX else await asyncio.to_thread(_md5, data)


def _body(data: Data, on_read: Callable[[], None]) -> bytes | UploadBody:
    """The body for a PUT."""
    return bytes(data) if len(data) <= INLINE_BYTES_MAX else UploadBody(memoryview(data), on_read)


def _md5(data: Data) -> str:
    return base64.b64encode(hashlib.md5(data, usedforsecurity=False).digest()).decode()


def _text_of(answer: dict[str, Any], name: str, key: str, otherwise: str) -> str:
    """A member that every answer of this kind has. ObjectStoreUnavailableError, with the text `otherwise`, without it:
    then a load balancer or another server has answered, whatever the status says."""
    value = answer.get(name)
    if not isinstance(value, str) or not value:
        raise ObjectStoreUnavailableError(otherwise, key=key, missing=name)
    return value


def _etag_of(answer: dict[str, Any], key: str) -> str:
    """What the store calls the bytes that it has stored."""
    return _text_of(answer, "ETag", key, "the answer does not say that the object is stored")


def _next_of(answer: dict[str, Any], name: str, key: str) -> str:
    """Where a listing goes on that is cut."""
    return _text_of(answer, name, key, "a listing is cut, and does not say where it goes on")


def _raise_delete_failure(failure: dict[str, Any]) -> None:
    """The failure of one key of a bulk delete; a key that is not there is none."""
    code, key = failure.get("Code", ""), failure.get("Key", "")
    if code in ("NoSuchKey", "404"):
        return
    error_class = ObjectStoreUnavailableError if code in RETRY_CODES else ObjectStoreRefusedError
    raise error_class("an object could not be deleted", key=key, code=code, reason=failure.get("Message", ""))


def _info(key: str, item: dict[str, Any], *, size_bytes: int) -> ObjectInfo:
    modified = item.get("LastModified")
    modified_ms = int(modified.timestamp() * 1000) if modified is not None else 0
    etag = item.get("ETag", "").strip('"')  # some list objects without
    return ObjectInfo(key=key, size_bytes=size_bytes, etag=etag, modified_ms=modified_ms)
