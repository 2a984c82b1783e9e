"""What S3 may answer, from a stub that answers it: no test server ever sends a 409 or is overloaded.

Covers `tiered/s3/s3_object_store.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random

import pytest

from tests.tiered.s3.stub_server import stubbed
from thermocline.remoting.errors import MQError, ObjectNotFoundError, ObjectStoreUnavailableError, SegmentSizeError
from thermocline.tiered.objects.errors import AlreadyExistsError, ObjectStoreRefusedError
from thermocline.tiered.objects.segment_offset import SegmentOffset
from thermocline.tiered.s3 import S3Options
from thermocline.tiered.wrappers import RetryingObjectStore, RetryPolicy


@pytest.mark.parametrize(
    ("status", "code", "error_class"),
    [
        (409, "ConditionalRequestConflict", ObjectStoreUnavailableError),
        (409, "OperationAborted", ObjectStoreUnavailableError),
        (412, "PreconditionFailed", AlreadyExistsError),
        (500, "InternalError", ObjectStoreUnavailableError),
        (503, "SlowDown", ObjectStoreUnavailableError),
        (429, "TooManyRequests", ObjectStoreUnavailableError),
        (400, "RequestTimeout", ObjectStoreUnavailableError),
        (400, "BadDigest", ObjectStoreUnavailableError),
        (403, "AccessDenied", ObjectStoreRefusedError),
        (403, "SignatureDoesNotMatch", ObjectStoreRefusedError),
        (400, "InvalidArgument", ObjectStoreRefusedError),
        (404, "NoSuchBucket", ObjectStoreRefusedError),
    ],
)
async def test_answers_to_a_conditional_write(status: int, code: str, error_class: type[MQError]) -> None:
    async with stubbed() as (stub, store):
        stub.answer(status, code=code)
        with pytest.raises(error_class) as raised:
            await store.create_if_absent("k", b"1")
        assert type(raised.value) is error_class
        assert "if-none-match: *" in stub.requests[0].lower()
        assert len(stub.requests) == 1, "no retries of its own"


@pytest.mark.parametrize(
    ("status", "code", "error_class"),
    [
        (404, "NoSuchKey", ObjectNotFoundError),
        (416, "InvalidRange", SegmentSizeError),
        (503, "ServiceUnavailable", ObjectStoreUnavailableError),
        (403, "AccessDenied", ObjectStoreRefusedError),
    ],
)
async def test_answers_to_a_ranged_read(status: int, code: str, error_class: type[MQError]) -> None:
    async with stubbed() as (stub, store):
        stub.answer(status, code=code)
        with pytest.raises(error_class):
            await store.get_range("k", start=0, end=10)
        assert "range: bytes=0-9" in stub.requests[0].lower()


async def test_a_conflict_is_tried_again() -> None:
    async with stubbed() as (stub, store):

        async def no_sleep(_seconds: float) -> None:
            await asyncio.sleep(0)

        retrying = RetryingObjectStore(store, policy=RetryPolicy(), random=Random(1), sleep=no_sleep)
        stub.answer(409, code="ConditionalRequestConflict")
        stub.answer(409, code="ConditionalRequestConflict")
        stub.stored()
        await retrying.create_if_absent("k", b"1")
        assert len(stub.requests) == 3


async def test_answers_that_are_cut_off() -> None:
    async with stubbed() as (stub, store):
        stub.hang_up()
        with pytest.raises(ObjectStoreUnavailableError):
            await store.get("k")
        stub.hang_up(b"HTTP/1.1 200 X\r\nContent-Length: 100\r\n\r\ncut off")
        with pytest.raises(ObjectStoreUnavailableError):
            await store.get("k")
        stub.hang_up(b"garbage")
        with pytest.raises(ObjectStoreUnavailableError):
            await store.put("k", b"1")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html><body>maintenance<br></body>",
        b"<html><body>maintenance</body></html>",
        b"<ListBucketResult><Contents><Key>k</Key><Size>1</Size>",
        b"<ListBucketResult><IsTruncated>true</IsTruncated></ListBucketResult>",
    ],
    ids=["empty", "a page of a load balancer", "another page", "cut off", "without a token"],
)
async def test_answers_that_are_no_listing(body: bytes) -> None:
    """None of them is a prefix without objects: what is not listed may be deleted, as nothing pins it."""
    async with stubbed() as (stub, store):
        stub.answer(200, body=body)
        with pytest.raises(ObjectStoreUnavailableError):
            assert [info.key async for info in store.list("k")] == []


async def test_an_answer_that_names_only_who_pays_is_no_listing() -> None:
    async with stubbed() as (stub, store):
        stub.answer(200, headers="x-amz-request-charged: requester\r\n")
        with pytest.raises(ObjectStoreUnavailableError, match="no listing"):
            assert [info.key async for info in store.list("k")] == []


NO_ERRORS_OF_S3 = {
    "empty": b"",
    "text": b"404 page not found\n",
    "page": b"<html><head><title>404</title></head><body><hr><center>nginx</center></body></html>",
    "well-formed page": b"<html><body>404</body></html>",
}


@pytest.mark.parametrize("page", NO_ERRORS_OF_S3.values(), ids=NO_ERRORS_OF_S3.keys())
async def test_a_404_that_no_store_has_answered(page: bytes) -> None:
    """A load balancer whose servers are away. For the ledger's writer a missing entry means that a successor has
    collected it: it would delete what it has just committed, and be fenced for good."""
    async with stubbed() as (stub, store):
        calls: list[Callable[[], Awaitable[object]]] = [
            lambda: store.get("k"),
            lambda: store.get_range("k", start=SegmentOffset(0), end=SegmentOffset(4)),
            lambda: store.get_suffix("k", size_bytes=4),
            lambda: store.put("k", b"1"),
            lambda: store.create_if_absent("k", b"1"),
            lambda: store.delete("k"),
            lambda: store.delete_many(["k", "l"]),
            lambda: anext(store.list("k")),
        ]
        for call in calls:
            stub.answer(404, body=page)
            with pytest.raises(ObjectStoreUnavailableError, match="no answer of an object store"):
                await call()


async def test_a_head_that_finds_nothing_is_confirmed_by_a_get() -> None:
    async with stubbed() as (stub, store):
        stub.answer(404)
        stub.answer(404, code="NoSuchKey")
        with pytest.raises(ObjectNotFoundError):
            await store.head("k")
        stub.answer(404)
        stub.answer(404, body=b"404 page not found\n")
        with pytest.raises(ObjectStoreUnavailableError):
            await store.head("k")
        for answered in (206, 416):  # it is there after all; 416: and empty
            stub.answer(404)
            stub.answer(answered, body=b"1", headers='ETag: "e"\r\n')
            with pytest.raises(ObjectStoreUnavailableError, match="a GET does"):
                await store.head("k")


async def test_a_read_that_no_store_has_answered() -> None:
    """A page with 200 is no object; it may come in pieces, without its length."""
    async with stubbed() as (stub, store):
        stub.answers.append(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\npage\r\n0\r\n\r\n")
        with pytest.raises(ObjectStoreUnavailableError, match="no object"):
            await store.get("k")
        stub.answer(200, body=b"page")
        with pytest.raises(ObjectStoreUnavailableError, match="no object"):
            await store.get_range("k", start=SegmentOffset(0), end=SegmentOffset(4))
        stub.answer(200)
        with pytest.raises(ObjectStoreUnavailableError, match="no object"):
            await store.head("k")


async def test_an_object_in_chunks() -> None:
    """Of an object that is stored so, or behind a gateway that does: its size is not said before it."""
    async with stubbed() as (stub, store):
        head = b'HTTP/1.1 200 X\r\nETag: "e"\r\nTransfer-Encoding: chunked\r\n\r\n'
        stub.answers.append(head + b"4\r\nwhol\r\n1\r\ne\r\n0\r\n\r\n")
        assert await store.get("k") == b"whole"
        stub.hang_up(head + b"7\r\ncut off\r\n")
        with pytest.raises(ObjectStoreUnavailableError):
            await store.get("k")


async def test_a_write_that_no_store_has_answered() -> None:
    """A load balancer's page with 200: if that counted as stored, the ledger would name an object that is nowhere."""
    page = b"<html><body>maintenance</body></html>"
    async with stubbed(S3Options(bucket="bucket", put_bytes_max=4)) as (stub, store):
        for put in (store.put, store.create_if_absent):
            stub.answer(200, body=page)
            with pytest.raises(ObjectStoreUnavailableError, match="does not say that the object is stored"):
                await put("k", b"1")
        stub.answer(200, body=page)
        with pytest.raises(ObjectStoreUnavailableError, match="does not name the upload"):
            await store.put("k", b"12345")
        for number_of_good in (0, 1):
            stub.answer(200, body=b"<R><UploadId>u1</UploadId></R>")
            for _ in range(number_of_good):
                stub.stored()
            stub.answer(200, body=page)
            stub.answer(204)  # the upload is given up
            with pytest.raises(ObjectStoreUnavailableError, match="does not say that the object is stored"):
                await store.put("k", b"12345")
        assert not stub.answers


async def test_a_listing_without_objects() -> None:
    async with stubbed() as (stub, store):
        for content in (b"<Name>bucket</Name>", b"<IsTruncated>false</IsTruncated>", b"<KeyCount>0</KeyCount>"):
            stub.answer(200, body=b"<ListBucketResult>%b</ListBucketResult>" % content)
            assert [info.key async for info in store.list("k")] == []


def page_of(token: str, *keys: str) -> bytes:
    """A page of a listing that is cut."""
    contents = "".join(f"<Contents><Key>{key}</Key><Size>1</Size></Contents>" for key in keys)
    token = f"<IsTruncated>true</IsTruncated><NextContinuationToken>{token}</NextContinuationToken>"
    return f"<ListBucketResult>{contents}{token}</ListBucketResult>".encode()


@pytest.mark.parametrize(
    "pages",
    [(page_of("1", "k1", "k2"), page_of("2", "k1", "k2")), (page_of("1", "k1"), page_of("1"))],
    ids=["another token", "the same token"],
)
async def test_a_listing_that_does_not_go_on(pages: tuple[bytes, ...]) -> None:
    """Of a store that passes over the token: it would be listed for ever."""
    async with stubbed() as (stub, store):
        for page in pages:
            stub.answer(200, body=page)
        with pytest.raises(ObjectStoreUnavailableError, match="a listing"):
            async for _ in store.list("k"):
                pass
        assert not stub.answers
        for page in (page_of("1", "k1"), page_of("2"), b"<ListBucketResult><Name>bucket</Name></ListBucketResult>"):
            stub.answer(200, body=page)
        assert [info.key async for info in store.list("k")] == ["k1"]


async def test_unfinished_uploads_that_cannot_be_listed_to_the_end() -> None:
    body = b"<ListMultipartUploadsResult><IsTruncated>true</IsTruncated></ListMultipartUploadsResult>"
    async with stubbed() as (stub, store):
        stub.answer(200, body=body)
        with pytest.raises(ObjectStoreUnavailableError):
            await store.remove_incomplete("k")


async def test_a_range_that_is_answered_shorter() -> None:
    async with stubbed() as (stub, store):
        stub.answer(206, body=b"12345", headers='ETag: "e"\r\nContent-Range: bytes 0-4/5\r\n')
        with pytest.raises(SegmentSizeError):
            await store.get_range("k", start=0, end=10)


async def test_failures_inside_a_bulk_delete() -> None:
    async with stubbed() as (stub, store):
        for code, error_class in (
            ("InternalError", ObjectStoreUnavailableError),
            ("AccessDenied", ObjectStoreRefusedError),
        ):
            body = f"<DeleteResult><Error><Key>k</Key><Code>{code}</Code><Message>m</Message></Error></DeleteResult>"
            stub.answer(200, body=body.encode())
            with pytest.raises(error_class):
                await store.delete_many(["k", "l"])
        stub.answer(200, body=b"<DeleteResult></DeleteResult>")
        await store.delete_many(["k", "l"])


async def test_bodies_carry_a_checksum_and_are_not_hashed_for_the_signature() -> None:
    async with stubbed() as (stub, store):
        stub.stored()
        await store.put("k", b"hello")
        assert "Content-MD5: XUFAKrxLKna5cZ2REBfFkg==" in stub.requests[0]
        head = stub.requests[0].lower()
        assert "x-amz-content-sha256: unsigned-payload" in head
        assert "x-amz-checksum" not in head
