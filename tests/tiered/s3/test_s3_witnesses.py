"""What the store says it has put into a bucket, two clients that are not ours find there, and the reverse."""

from __future__ import annotations

import io
import random
from collections.abc import Callable, Mapping

import boto3
import pytest
from botocore.config import Config
from minio import Minio

from tests.fixtures_s3 import S3Bucket
from thermocline.tiered.s3 import S3ObjectStore, S3Options

PREFIX = "history/"
PART_BYTES = 5 << 20
OBJECTS: Mapping[str, bytes] = {
    "empty": b"",
    "ledger/00000001": b"one line\n",
    "topics/Aufträge 50%+1/0/segment": bytes(range(256)) * 40,
    "large/in-parts": random.Random(7).randbytes(2 * PART_BYTES + 1),
}

pytestmark = pytest.mark.s3


async def our_store(bucket: S3Bucket) -> S3ObjectStore:
    options = S3Options(
        bucket=bucket.name,
        prefix=PREFIX,
        endpoint=bucket.endpoint,
        region=bucket.region,
        access_key=bucket.access_key,
        secret_key=bucket.secret_key,
        put_bytes_max=PART_BYTES,
        part_bytes=PART_BYTES,
    )
    return await S3ObjectStore.open(options)


class Boto3Witness:
    """The AWS SDK."""

    def __init__(self, bucket: S3Bucket) -> None:
        self._bucket = bucket.name
        self._client = boto3.client(
            "s3",
            endpoint_url=bucket.endpoint,
            region_name=bucket.region,
            aws_access_key_id=bucket.access_key,
            aws_secret_access_key=bucket.secret_key,
            config=Config(s3={"addressing_style": "path"}),
        )

    def read_all(self) -> dict[str, bytes]:
        pages = self._client.get_paginator("list_objects_v2").paginate(Bucket=self._bucket)
        keys = [found["Key"] for page in pages for found in page.get("Contents", [])]
        return {key: self._client.get_object(Bucket=self._bucket, Key=key)["Body"].read() for key in keys}

    def write(self, key: str, data: bytes) -> None:
        self._client.put_object(Bucket=self._bucket, Key=key, Body=data)


class MinioWitness:
    """The client of MinIO."""

    def __init__(self, bucket: S3Bucket) -> None:
        self._bucket = bucket.name
        self._client = Minio(
            bucket.endpoint.removeprefix("http://"),
            access_key=bucket.access_key,
            secret_key=bucket.secret_key,
            region=bucket.region,
            secure=False,
        )

    def read_all(self) -> dict[str, bytes]:
        objects: dict[str, bytes] = {}
        for found in self._client.list_objects(self._bucket, recursive=True):
            assert found.object_name is not None
            answer = self._client.get_object(self._bucket, found.object_name)
            try:
                objects[found.object_name] = answer.read()
            finally:
                answer.close()
                answer.release_conn()
        return objects

    def write(self, key: str, data: bytes) -> None:
        self._client.put_object(self._bucket, key, io.BytesIO(data), len(data))


@pytest.mark.parametrize("make_witness", [Boto3Witness, MinioWitness])
async def test_other_clients_and_this_one_read_each_others_objects(
    any_s3_bucket: S3Bucket, make_witness: Callable[[S3Bucket], Boto3Witness | MinioWitness]
) -> None:
    witness = make_witness(any_s3_bucket)
    store = await our_store(any_s3_bucket)
    try:
        for key, data in OBJECTS.items():
            await (store.create_if_absent if len(data) <= PART_BYTES else store.put)(key, data)
        assert witness.read_all() == {PREFIX + key: data for key, data in OBJECTS.items()}
        witness.write(PREFIX + "from/elsewhere", b"not ours")
        assert await store.get("from/elsewhere") == b"not ours"
        sizes = {found.key: found.size_bytes async for found in store.list("")}
        assert sizes == {key: len(data) for key, data in OBJECTS.items()} | {"from/elsewhere": 8}
        await store.delete_many(sizes)
        assert witness.read_all() == {}
    finally:
        await store.close()
