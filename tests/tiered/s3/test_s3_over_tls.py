"""https endpoints: an authority of one's own is named, and who is not trusted is called so in one sentence."""

from __future__ import annotations

import datetime
import json
import ssl
from pathlib import Path

import pytest

from tests.certificates import make_certificates
from tests.fixtures_s3 import new_bucket
from tests.tiered.s3.stub_server import stubbed
from thermocline.cli.main import run
from thermocline.localstack import S3Server
from thermocline.localstack.minio import KMS_KEY_ID
from thermocline.remoting.errors import ObjectStoreUnavailableError
from thermocline.tiered.objects.errors import ObjectStoreRefusedError, UntrustedStoreError
from thermocline.tiered.s3 import S3ObjectStore, S3Options
from thermocline.tiered.stores.object_store_url import ObjectStoreOptions, open_object_store
from thermocline.tiered.wrappers import RetryPolicy

ONCE = ObjectStoreOptions(retry=RetryPolicy(attempts_max=1))
PACK, HINT = "c/b/packs/forever/0000000001-0000000001.pack", "c/b/head-hint"


def stub_context(folder: Path, *, address: str = "127.0.0.1", age: datetime.timedelta | None = None) -> ssl.SSLContext:
    make_certificates(folder, address=address, age=age)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(folder / "public.crt", folder / "private.key")
    return context


def trusting(folder: Path) -> S3Options:
    return S3Options(bucket="bucket", ca=str(folder / "authority.pem"))


async def test_a_named_authority_is_trusted(tmp_path: Path) -> None:
    tls = stub_context(tmp_path / "tls")
    async with stubbed(trusting(tmp_path / "tls"), tls=tls) as (stub, store):
        stub.found(b"data")
        assert await store.get("a") == b"data"


async def test_another_hosts_certificate_is_not_trusted(tmp_path: Path) -> None:
    tls = stub_context(tmp_path / "tls", address="127.0.0.2")
    async with stubbed(trusting(tmp_path / "tls"), tls=tls) as (stub, store):
        with pytest.raises(UntrustedStoreError, match=r"not trusted \(IP address mismatch") as caught:
            await store.get("a")
        assert stub.requests == []
        assert "AWS_CA_BUNDLE" not in str(caught.value)  # an authority would not help


async def test_a_certificate_that_is_too_old_is_an_outage(tmp_path: Path) -> None:
    """Its owner ends it; a broker serves on until then."""
    tls = stub_context(tmp_path / "tls", age=datetime.timedelta(hours=1))
    async with stubbed(trusting(tmp_path / "tls"), tls=tls) as (_, store):
        with pytest.raises(ObjectStoreUnavailableError, match="certificate has expired") as caught:
            await store.get("a")
        assert not isinstance(caught.value, ObjectStoreRefusedError)


@pytest.mark.s3
@pytest.mark.xdist_group("s3-tls")
def test_the_doctor_over_tls(
    tls_s3_server: S3Server, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    quick = ("--rounds", "1", "--size-mib", "1")
    bucket = new_bucket(tls_s3_server)
    assert run(["store", "doctor", bucket.cold_url, *quick, "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    (finding,) = report["findings"]
    assert (finding["name"], finding["verdict"], report["fencing_chosen"]) == ("certificate", "defect", None)
    assert finding["text"].startswith(
        "the certificate of the object store is not trusted (unable to get local issuer certificate):"
        " name a file with its authority, by ca= in the URL or in AWS_CA_BUNDLE"
    )
    authority = str(tls_s3_server.authority)
    kept = f"&ca={authority}&sse=aws:kms&sse_kms_key_id={KMS_KEY_ID}&storage_class=REDUCED_REDUNDANCY"
    assert run(["store", "doctor", bucket.cold_url + kept, *quick]) == 0
    assert "is fit for the cold tier" in capsys.readouterr().out
    monkeypatch.setenv("AWS_CA_BUNDLE", authority)
    assert run(["store", "doctor", bucket.cold_url, *quick]) == 0


@pytest.mark.s3
@pytest.mark.xdist_group("s3-tls")
async def test_objects_are_kept_as_was_asked(tls_s3_server: S3Server) -> None:
    bucket = new_bucket(tls_s3_server)
    kept = f"&ca={tls_s3_server.authority}&sse=AES256&storage_class=REDUCED_REDUNDANCY"
    store = await open_object_store(bucket.cold_url + kept, ONCE)
    client = tls_s3_server.client()
    try:
        for key, storage_class in ((PACK, "REDUCED_REDUNDANCY"), (HINT, None)):
            await store.put(key, b"x" * 1_000)
            assert await store.get_range(key, start=10, end=20) == b"x" * 10
            answer = client.head_object(Bucket=bucket.name, Key=f"cold/{key}")
            assert (answer.get("StorageClass"), answer["ServerSideEncryption"]) == (storage_class, "AES256")
    finally:
        client.close()
        await store.close()
    options = S3Options(
        bucket=bucket.name,
        endpoint=bucket.endpoint,
        access_key=bucket.access_key,
        secret_key=bucket.secret_key,
        ca=str(tls_s3_server.authority),
        storage_class="REDUCED_REDUNDANCY",
        sse="AES256",
        put_bytes_max=1 << 20,
        part_bytes=5 << 20,
    )
    parts = await S3ObjectStore.open(options)
    client = tls_s3_server.client()
    try:
        await parts.put(PACK, bytes(6 << 20))
        answer = client.head_object(Bucket=bucket.name, Key=PACK)
        assert answer["ContentLength"] == 6 << 20
        assert (answer["StorageClass"], answer["ServerSideEncryption"]) == ("REDUCED_REDUNDANCY", "AES256")
    finally:
        client.close()
        await parts.close()


@pytest.mark.s3
@pytest.mark.xdist_group("s3-tls")
async def test_a_class_that_the_store_does_not_have_is_named(tls_s3_server: S3Server) -> None:
    url = f"{new_bucket(tls_s3_server).cold_url}&ca={tls_s3_server.authority}&storage_class=NOWHERE"
    store = await open_object_store(url, ONCE)
    with pytest.raises(ObjectStoreRefusedError, match="InvalidStorageClass"):
        await store.put("doctor/1/try", b"x")  # so a doctor finds it before there is history
    await store.put(HINT, b"1")
    await store.close()
