"""What only S3 has: checksums, multipart uploads, pages, conditions on completing an upload, the server's clock.

Known values: the checksums of "123456789" that every catalogue of CRCs gives for a check.
"""

from __future__ import annotations

import asyncio
import base64
import email.utils
import hashlib
from collections.abc import Callable
from typing import Any

from botocore.exceptions import ClientError, ParamValidationError

from thermocline.tiered.doctor.bench import Bench
from thermocline.tiered.doctor.finding import Finding, failed, noted, passed, skipped, warned
from thermocline.tiered.objects import SegmentOffset
from thermocline.tiered.s3 import S3ObjectStore, translated

MIB = 1024 * 1024
PART_BYTES = 5 * MIB
SKEW_TOLD_S, SKEW_WARN_S, SKEW_MAX_S = 2, 300, 900
"""Signatures are refused from a quarter of an hour on."""
COMPLETE_WRITERS = 4

CHECKED_BODY = b"123456789"
CHECKSUMS: dict[str, str] = {
    "CRC32": base64.b64encode(0xCBF43926.to_bytes(4, "big")).decode(),
    "CRC32C": base64.b64encode(0xE3069283.to_bytes(4, "big")).decode(),
    "CRC64NVME": base64.b64encode(0xAE8B14860A799888.to_bytes(8, "big")).decode(),
    "SHA256": base64.b64encode(hashlib.sha256(CHECKED_BODY).digest()).decode(),
}


class S3Probes:
    """Requests to one bucket past the provider's verbs; what they write is noted on `bench`."""

    def __init__(self, store: S3ObjectStore, bench: Bench) -> None:
        self._client = store.client
        self._bucket = store.bucket
        self._full = store.full_key
        self._kept_as = store.kept_as
        self._bench = bench

    async def probe_pages(self) -> Finding:
        """Whether a listing in pages gives each key once."""
        name, folder = "listing-pages", self._bench.key("pages/")
        keys = [f"{folder}{number:02}" for number in range(20)]
        for key in keys:
            await self._bench.put(key, b"x")
        found: list[str] = []
        request: dict[str, Any] = {"Bucket": self._bucket, "Prefix": self._full(folder + "x")[:-1], "MaxKeys": 7}
        for _ in range(len(keys)):
            with translated(folder):
                answer = await self._client.list_objects_v2(**request)
            found += [item["Key"] for item in answer.get("Contents", ())]
            if not answer.get("IsTruncated"):
                break
            request["ContinuationToken"] = answer["NextContinuationToken"]
        if found != [self._full(key) for key in keys]:
            return failed(name, f"pages of 7 gave {len(found)} of {len(keys)} keys, or in another order")
        return passed(name, "pages give each key once", keys=len(keys))

    async def probe_checksums(self) -> list[Finding]:
        """Whether the store rejects a damaged body, and keeps checksums for readers."""
        unnoticed = []
        if not await self._refuses("md5", ContentMD5=base64.b64encode(bytes(16)).decode()):
            unnoticed.append("Content-MD5")
        wrong = {"ChecksumCRC32": base64.b64encode(bytes(4)).decode()}
        if not await self._refuses("crc32", **wrong):
            unnoticed.append("CRC32")
        kept: list[str] = []
        lost: list[str] = []
        for algorithm, value in CHECKSUMS.items():
            is_kept = await self._keeps(algorithm, value)
            if is_kept is not None:
                (kept if is_kept else lost).append(algorithm)
        findings = []
        if unnoticed:
            text = (
                f"stores a body whose {' and '.join(unnoticed)} is wrong: damage on the way shows only when it is read"
            )
            findings.append(warned("checksums-verified", text))
        else:
            findings.append(passed("checksums-verified", "a wrong Content-MD5 and a wrong CRC32 are refused"))
        if lost:
            findings.append(noted("checksums-kept", f"{', '.join(lost)} not returned as they were given"))
        else:
            findings.append(passed("checksums-kept", f"{', '.join(kept)} are kept and returned"))
        findings.append(await self._probe_checksum_of_range())
        return findings

    async def probe_multipart(self) -> list[Finding]:
        """Uploads in parts: put together, listed, given up, and completed under a condition."""
        key, data = self._bench.key("multipart"), self._bench.random.randbytes(PART_BYTES + 1_000)
        findings = []
        upload = await self._upload(key, data)
        with translated(key):
            await self._complete(upload)
        start, end = SegmentOffset(PART_BYTES - 100), SegmentOffset(PART_BYTES + 100)
        if await self._bench.get_range(key, start=start, end=end) != data[start:end]:
            findings.append(failed("multipart", "a range across two parts is not what was put"))
        else:
            findings.append(passed("multipart", "parts are put together; a range across them is exact"))
        findings.append(await self._probe_uploads_listed())
        findings.append(await self._probe_conditional_complete())
        return findings

    async def probe_clock(self, *, now_s: Callable[[], float]) -> Finding:
        """How far the server's clock is from ours."""
        name = "clock"
        with translated("?"):
            answer = await self._client.list_objects_v2(Bucket=self._bucket, MaxKeys=1)
        text = answer["ResponseMetadata"]["HTTPHeaders"].get("date")
        if not text:
            return skipped(name, "the store sends no Date")
        # Dates have whole seconds, cut off.
        skew_s = email.utils.parsedate_to_datetime(text).timestamp() + 0.5 - now_s()
        verdict = f"the store's clock is {abs(skew_s):.0f} s {'ahead' if skew_s > 0 else 'behind'}"
        if abs(skew_s) > SKEW_WARN_S:
            return warned(name, f"{verdict}: from {SKEW_MAX_S} s on requests are refused", skew_s=round(skew_s, 1))
        if abs(skew_s) < SKEW_TOLD_S:
            verdict = "the store's clock agrees with this machine's"
        return passed(name, verdict, skew_s=round(skew_s, 1))

    async def _refuses(self, name: str, **checksum: str) -> bool:
        """Whether a put with this wrong checksum is refused."""
        key = self._bench.key(f"wrong-{name}")
        self._bench.will_write(key)
        wanted = {"Bucket": self._bucket, "Key": self._full(key), **self._kept_as(key), **checksum}
        try:
            await self._client.put_object(**wanted, Body=CHECKED_BODY)
        except ClientError as error:
            return bool(error.response["ResponseMetadata"]["HTTPStatusCode"] < 500)
        return False

    async def _keeps(self, algorithm: str, value: str) -> bool | None:
        """Whether HEAD returns a checksum that was given; None when this client does not know it."""
        key, name = self._bench.key(f"checksum-{algorithm}"), f"Checksum{algorithm}"
        self._bench.will_write(key)
        wanted = {"Bucket": self._bucket, "Key": self._full(key)}
        try:
            await self._client.put_object(**wanted, **self._kept_as(key), Body=CHECKED_BODY, **{name: value})
            answer = await self._client.head_object(**wanted, ChecksumMode="ENABLED")
        except ParamValidationError:
            return None
        except ClientError:
            return False
        return bool(answer.get(name) == value)

    async def _probe_checksum_of_range(self) -> Finding:
        name, key = "checksum-of-range", self._bench.key("checksum-CRC32")
        try:
            answer = await self._client.get_object(
                Bucket=self._bucket, Key=self._full(key), Range="bytes=2-4", ChecksumMode="ENABLED"
            )
        except ClientError as error:
            return noted(name, f"a ranged read that asks for checksums is refused ({error})")
        answer["Body"].close()  # unread: the client would check it, and fail as ours must not
        if any(answer.get(f"Checksum{algorithm}") for algorithm in CHECKSUMS):
            return noted(
                name, "a ranged read comes with the checksum of the whole object, which clients may check it by"
            )
        return passed(name, "a ranged read comes without the whole object's checksum")

    async def _probe_uploads_listed(self) -> Finding:
        name, key = "uploads-listed", self._bench.key("unfinished")
        with translated(key):
            upload = await self._client.create_multipart_upload(
                Bucket=self._bucket, Key=self._full(key), **self._kept_as(key)
            )
        wanted = {"Bucket": self._bucket, "Key": self._full(key), "UploadId": upload["UploadId"]}
        try:
            # Some list uploads by a prefix only when it is the whole key.
            answer = await self._client.list_multipart_uploads(Bucket=self._bucket, Prefix=self._full(key))
            is_listed = any(found["UploadId"] == upload["UploadId"] for found in answer.get("Uploads", ()))
        except ClientError:
            is_listed = False
        with translated(key):
            await self._client.abort_multipart_upload(**wanted)
        if not is_listed:
            return warned(name, "unfinished uploads are not listed, so what they leave is never removed")
        return passed(name, "unfinished uploads are listed and can be given up")

    async def _probe_conditional_complete(self) -> Finding:
        """Thermocline creates nothing in parts, so this is for information."""
        name, key = "conditional-complete", self._bench.key("complete")
        bodies = [b"%d" % writer for writer in range(COMPLETE_WRITERS)]
        uploads = [await self._upload(key, body) for body in bodies]
        answers = await asyncio.gather(*(self._try_complete(upload, IfNoneMatch="*") for upload in uploads))
        late = await self._upload(key, b"late")
        is_late_refused = not await self._try_complete(late, IfNoneMatch="*")
        other = await self._upload(key, b"other")
        is_match_refused = not await self._try_complete(other, IfMatch='"00000000000000000000000000000000"')
        winners = sum(answers)
        figures = {"writers": COMPLETE_WRITERS, "winners": winners}
        wrong = []
        if not is_late_refused:
            wrong.append("If-None-Match")
        elif winners > 1:
            wrong.append(f"If-None-Match of racing writers ({winners} of {COMPLETE_WRITERS} won)")
        if not is_match_refused:
            wrong.append("If-Match")
        if wrong:
            return noted(
                name, f"completing an upload ignores {' and '.join(wrong)}; nothing here relies on it", **figures
            )
        return passed(name, "completing an upload honours If-None-Match and If-Match, racing too", **figures)

    async def _upload(self, key: str, data: bytes) -> dict[str, Any]:
        """An upload with all of its parts, to be completed."""
        self._bench.will_write(key)
        wanted = {"Bucket": self._bucket, "Key": self._full(key)}
        with translated(key):
            answer = await self._client.create_multipart_upload(**wanted, **self._kept_as(key))
            wanted["UploadId"] = answer["UploadId"]
            parts = []
            for number, start in enumerate(range(0, len(data), PART_BYTES), start=1):
                body = data[start : start + PART_BYTES]
                answer = await self._client.upload_part(**wanted, PartNumber=number, Body=body)
                parts.append({"PartNumber": number, "ETag": answer["ETag"]})
        return {**wanted, "MultipartUpload": {"Parts": parts}}

    async def _complete(self, upload: dict[str, Any], **condition: str) -> None:
        await self._client.complete_multipart_upload(**upload, **condition)

    async def _try_complete(self, upload: dict[str, Any], **condition: str) -> bool:
        """Whether it was completed; one that was not is given up."""
        try:
            await self._complete(upload, **condition)
        except ParamValidationError:
            return False
        except ClientError:
            upload = {name: value for name, value in upload.items() if name != "MultipartUpload"}
            try:
                await self._client.abort_multipart_upload(**upload)
            except ClientError:  # some forget a refused upload by themselves
                return False
            return False
        return True
