"""The store doctor on real servers: passes those that are fit, and names the defects of those that are not.

Covers `tiered/doctor/store_probes.py`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fixtures_s3 import S3Bucket, new_bucket, objects_in
from tests.s3_proxy import Forward, ProxiedRequest, S3Proxy, s3_error
from thermocline.cli.main import run
from thermocline.localstack import S3Server
from thermocline.remoting.errors import InvalidRequestError
from thermocline.tiered.doctor.examination import ExaminationOptions, examine
from thermocline.tiered.doctor.fencing_probe import Races
from thermocline.tiered.doctor.finding import Report, Verdict
from thermocline.tiered.ledger.fencing import FencingMode

MIB = 1024 * 1024
EXAMINATIONS_MAX = 6
QUICK = ExaminationOptions(races=Races(small_rounds=4, large_rounds=1, listing_rounds=2), throughput_bytes=2 * MIB)


async def all_keys(bucket: S3Bucket, server: S3Server) -> list[str]:
    return await asyncio.to_thread(objects_in, server, bucket)


def defects(report: Report) -> dict[str, str]:
    return {finding.name: finding.text for finding in report.findings if finding.verdict is Verdict.DEFECT}


@pytest.mark.s3
async def test_fit_servers_pass(any_s3_bucket: S3Bucket, any_s3_server: S3Server) -> None:
    report = await examine(any_s3_bucket.cold_url, QUICK)
    assert defects(report) == {}
    assert report.fencing is FencingMode.CONDITIONAL
    assert report.is_fit_for(FencingMode.BALLOTS)
    assert await all_keys(any_s3_bucket, any_s3_server) == []
    assert report.finding("cleanup").verdict is Verdict.OK
    assert "secret" not in report.url
    assert report.finding("throughput").figures["put_mib_per_s"] > 0
    if any_s3_server.kind == "moto":
        assert "Content-MD5" in report.finding("checksums-verified").text
        assert "If-Match" in report.finding("conditional-complete").text


async def test_a_directory_passes_and_is_left_as_it_was(tmp_path: Path) -> None:
    report = await examine((tmp_path / "cold").as_uri(), QUICK)
    assert defects(report) == {}
    assert report.fencing is FencingMode.CONDITIONAL
    assert not list(tmp_path.rglob("*"))


@pytest.mark.s3
@pytest.mark.xdist_group("s3-rclone")
async def test_rclone_accepts_conditions_and_ignores_them(s3_servers: Callable[[str], S3Server]) -> None:
    server = s3_servers("rclone")
    bucket = new_bucket(server)
    report = await examine(bucket.cold_url, QUICK)
    assert defects(report).keys() == {"conditional-create"}
    assert "accepts If-None-Match and ignores it" in report.finding("conditional-create").text
    assert report.finding("conditional-create").figures["winners_max"] == 16
    assert report.finding("checksums-verified").verdict is Verdict.WARNING
    assert report.finding("checksum-of-range").verdict is Verdict.NOTE
    assert report.fencing is FencingMode.BALLOTS
    assert await all_keys(bucket, server) == []


@pytest.mark.s3
@pytest.mark.xdist_group("s3-s3s-fs")
@pytest.mark.full
async def test_s3s_fs_honours_conditions_one_at_a_time(s3_servers: Callable[[str], S3Server]) -> None:
    server = s3_servers("s3s-fs")
    bucket = new_bucket(server)
    report = await examine(bucket.cold_url, QUICK)
    for _ in range(EXAMINATIONS_MAX):  # two writers win only where their requests overlap
        if report.finding("conditional-create").verdict is not Verdict.OK:
            break
        report = await examine(bucket.cold_url, QUICK)
    assert "one at a time" in report.finding("conditional-create").text
    assert report.finding("conditional-create").figures["winners_max"] > 1
    assert "ranges" in defects(report)  # it fails on a suffix longer than the object
    assert report.finding("uploads-listed").verdict is Verdict.WARNING
    assert report.fencing is None
    assert await all_keys(bucket, server) == []


@pytest.mark.s3
async def test_a_proxy_that_drops_the_condition(s3_bucket: S3Bucket) -> None:
    async with S3Proxy(s3_bucket, drops=("If-None-Match",)) as proxy:
        report = await examine(proxy.bucket.cold_url, QUICK)
        assert proxy.drop_count > 0
    assert defects(report).keys() == {"conditional-create"}
    assert report.fencing is FencingMode.BALLOTS


def denying(*, method: str, of_list: bool = False) -> Callable[[ProxiedRequest, Forward], object]:
    """A policy that forbids one kind of request."""

    async def rule(request: ProxiedRequest, forward: Forward) -> object:
        is_list = "list-type" in request.query
        is_meant = request.method == method and is_list == of_list
        if is_meant or (method == "DELETE" and "delete" in request.query):
            return s3_error(403, "AccessDenied")
        return await forward()

    return rule


@pytest.mark.s3
@pytest.mark.parametrize(
    ("method", "of_list", "finding"),
    [("GET", True, "may-list"), ("GET", False, "may-get"), ("PUT", False, "may-put"), ("DELETE", False, "may-delete")],
)
async def test_denied_requests_are_named(
    method: str, of_list: bool, finding: str, s3_bucket: S3Bucket, s3_server: S3Server
) -> None:
    async with S3Proxy(s3_bucket, rule=denying(method=method, of_list=of_list)) as proxy:
        report = await examine(proxy.bucket.cold_url, QUICK)
    assert "AccessDenied" in defects(report)[finding]
    assert report.fencing is None
    remaining = await all_keys(s3_bucket, s3_server)
    if finding == "may-delete":
        assert report.finding("cleanup").verdict is Verdict.WARNING
        assert report.finding("cleanup").figures["objects"] == len(remaining) == 1
    else:
        assert remaining == []


@pytest.mark.s3
async def test_a_clock_that_is_off_is_named(s3_bucket: S3Bucket) -> None:
    async def rule(_request: ProxiedRequest, forward: Forward) -> object:
        answer = await forward()
        answer.headers["Date"] = "Sat, 01 Jan 2000 00:00:00 GMT"
        return answer

    async with S3Proxy(s3_bucket, rule=rule) as proxy:
        report = await examine(proxy.bucket.cold_url, QUICK)
    assert "behind" in report.finding("clock").text
    assert report.finding("clock").verdict is Verdict.WARNING


async def test_a_store_that_does_not_answer() -> None:
    report = await examine("s3://bucket/p?endpoint=http://127.0.0.1:9&access_key=key&secret_key=secret", QUICK)
    assert defects(report).keys() >= {"may-list", "may-put"}
    assert report.fencing is None


async def test_no_url_of_a_store() -> None:
    with pytest.raises(InvalidRequestError):
        await examine("ftp://somewhere")


def test_the_command_says_fit_and_unfit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    url = (tmp_path / "cold").as_uri()
    assert run(["store", "doctor", url, "--rounds", "2", "--size-mib", "1"]) == 0
    out = capsys.readouterr().out
    assert "exactly one of 16 racing writers won, in each of 5 rounds" in out
    assert out.endswith(f"{url} is fit for the cold tier with coldFencing=conditional.\n")
    assert run(["store", "doctor", url, "--rounds", "1", "--size-mib", "1", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["fit"], report["fencing_chosen"]) == (True, "conditional")
    assert {finding["verdict"] for finding in report["findings"]} == {"ok"}
    (tmp_path / "file").write_bytes(b"")
    assert run(["store", "doctor", (tmp_path / "file").as_uri(), "--rounds", "1"]) == 1
    assert "is unfit for the cold tier" in capsys.readouterr().out
    assert run(["store", "doctor", "ftp://somewhere"]) == 1
    assert "an object store is file:///directory" in capsys.readouterr().err


@pytest.mark.s3
@pytest.mark.xdist_group("s3-rclone")
def test_the_command_exits_by_the_chosen_fencing(
    s3_servers: Callable[[str], S3Server], capsys: pytest.CaptureFixture[str]
) -> None:
    server = s3_servers("rclone")
    url = new_bucket(server).cold_url
    assert run(["store", "doctor", url, "--rounds", "2", "--size-mib", "1"]) == 1
    assert "is unfit with coldFencing=conditional; it is fit with coldFencing=ballots." in capsys.readouterr().out
    assert run(["store", "doctor", url, "--rounds", "2", "--size-mib", "1", "--fencing", "ballots"]) == 0
    assert server.secret_key not in capsys.readouterr().out
