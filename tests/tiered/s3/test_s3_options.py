"""How objects are to be kept, as the requests say it; and what is refused before there is a request.

Covers `tiered/doctor/s3_probes.py`.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from tests.tiered.s3.stub_server import StubServer, stubbed
from thermocline.remoting.errors import InvalidRequestError
from thermocline.tiered.doctor.bench import Bench
from thermocline.tiered.doctor.s3_probes import S3Probes
from thermocline.tiered.s3 import S3ObjectStore, S3Options
from thermocline.tiered.segments.object_keys import BrokerKeys, keeps_history
from thermocline.tiered.segments.segment_format import SegmentId
from thermocline.tiered.stores.object_store_url import parse_s3_url

KEYS = BrokerKeys.of(cluster="c", broker_name="b")
LOG = KEYS.segment("orders", SegmentId(1, 1))[0]
HINT = KEYS.head_hint
KEPT = S3Options(bucket="bucket", storage_class="STANDARD_IA", sse="aws:kms", sse_kms_key_id="arn:aws:kms:k/1")
CLASS, SSE = "x-amz-storage-class", "x-amz-server-side-encryption"
KEY_ID = f"{SSE}-aws-kms-key-id"
ALL = {CLASS: "STANDARD_IA", SSE: "aws:kms", KEY_ID: "arn:aws:kms:k/1"}
ENCRYPTED = {SSE: "aws:kms", KEY_ID: "arn:aws:kms:k/1"}


def storage_headers(head: str) -> dict[str, str]:
    """Return the headers of a request that say how to store the object."""
    lines = (line.partition(":") for line in head.split("\r\n")[1:])
    named = {name.strip().lower(): value.strip() for name, _, value in lines}
    return {name: value for name, value in named.items() if name in ALL}


def answer_uploads(stub: StubServer, parts: int) -> None:
    stub.answer(200, body=b"<R><UploadId>u1</UploadId></R>")
    for number in range(parts):
        stub.answer(200, headers=f'ETag: "{number}"\r\n')
    stub.answer(200, body=b"<R><ETag>e</ETag></R>")


async def test_puts_and_conditional_creates_say_it() -> None:
    async with stubbed(KEPT) as (stub, store):
        for _ in range(4):
            stub.stored()
        await store.put(LOG, b"records")
        await store.create_if_absent(LOG, b"records")
        await store.put(HINT, b"1")
        await store.create_if_absent(KEYS.ledger_entry(1), b"{}")
        assert [storage_headers(head) for head in stub.requests] == [ALL, ALL, ENCRYPTED, ENCRYPTED]
        assert ["if-none-match: *" in head.lower() for head in stub.requests] == [False, True, False, True]


async def test_an_upload_in_parts_says_it_when_it_begins() -> None:
    async with stubbed(replace(KEPT, put_bytes_max=4, part_bytes=4, part_concurrency_max=1)) as (stub, store):
        answer_uploads(stub, 2)
        await store.put(LOG, b"records")
        first, *parts, last = stub.requests
        assert first.startswith("POST ")
        assert "?uploads" in first.split("\r\n")[0]
        assert storage_headers(first) == ALL
        # S3 refuses these of a part and of the end.
        assert [storage_headers(head) for head in (*parts, last)] == [{}, {}, {}]


async def test_the_doctors_own_requests_say_it() -> None:
    """A policy of the bucket may refuse whatever does not."""
    async with stubbed(KEPT) as (stub, store):
        bench = Bench(store, parent="doctor/", random=Random(1))
        for _ in range(20):
            stub.stored()
        await S3Probes(store, bench).probe_checksums()
        puts = [head for head in stub.requests if head.startswith("PUT ")]
        assert len(puts) >= 4
        assert all(storage_headers(head) == ALL for head in puts)


async def test_no_storage_header_is_sent_by_default() -> None:
    async with stubbed() as (stub, store):
        stub.stored()
        await store.put(LOG, b"records")
        assert storage_headers(stub.requests[0]) == {}


def test_storage_options_of_history_objects() -> None:
    identity = SegmentId(1, 2)
    history = [
        *KEYS.segment("t", identity),
        KEYS.merged_segment("t", identity),
        KEYS.pack("forever", identity),
        KEYS.index("forever", identity),
        f"{KEYS.doctor_prefix}1/race",
        "doctor/1/race",
    ]
    others = [
        HINT,
        KEYS.ledger_entry(1),
        KEYS.checkpoint_head(1),
        KEYS.checkpoint_bucket(1, 0, epoch=1),
        KEYS.checkpoint_packs(1, epoch=1),
        KEYS.state(epoch=1, sequence=1),
        KEYS.pin("p"),
        KEYS.ballot("1"),
        KEYS.proposal(1, "1"),
    ]
    assert [keeps_history(key) for key in history] == [True] * len(history)
    assert [keeps_history(key) for key in others] == [False] * len(others)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("storage_class=GLACIER", "restored first"),
        ("storage_class=deep_archive", "restored first"),
        ("storage_class=a%0d%0ab", "no name of a storage class"),
        ("sse=SSE-C", "sse is one of AES256, aws:kms"),
        ("sse_kms_key_id=k", "is for sse=aws:kms"),
        ("sse=AES256&sse_kms_key_id=k", "is for sse=aws:kms"),
        ("endpoint=http://127.0.0.1:9&ca=/ca.pem", "https endpoint"),
        ("secret_key=***", "opens nothing"),
    ],
)
def test_contradictory_options_are_refused(options: str, words: str) -> None:
    with pytest.raises(InvalidRequestError, match=words):
        parse_s3_url(f"s3://bucket?{options}")


@pytest.mark.parametrize("name", ["STANDARD", "INTELLIGENT_TIERING", "GLACIER_IR", "my-hdd-pool"])
def test_classes_that_are_read_at_once(name: str) -> None:
    assert parse_s3_url(f"s3://bucket?storage_class={name}").storage_class == name


async def test_a_file_of_authorities_that_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidRequestError, match="No such file"):
        await S3ObjectStore.open(S3Options(bucket="b", ca=str(tmp_path / "missing.pem")))
    (tmp_path / "text.pem").write_text("not a certificate")
    with pytest.raises(InvalidRequestError, match="no PEM certificate in it"):
        await S3ObjectStore.open(S3Options(bucket="b", ca=str(tmp_path / "text.pem")))
    monkeypatch.setenv("AWS_CA_BUNDLE", str(tmp_path / "other.pem"))
    with pytest.raises(InvalidRequestError, match=r"other\.pem"):
        await S3ObjectStore.open(S3Options(bucket="b", endpoint="https://127.0.0.1:9"))
    store = await S3ObjectStore.open(S3Options(bucket="b", endpoint="http://127.0.0.1:9"))
    await store.close()
