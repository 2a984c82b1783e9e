"""`thermocline tier cost`, `ls`, `cat`, `verify` and `GET /metrics` on a running broker and its directory."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from base64 import b64decode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.test_daemons import Daemon
from thermocline.cli.main import run
from thermocline.client.message import Message
from thermocline.client.producer.producer import Producer
from thermocline.localstack.loopback_port import free_port

TOPIC = "kept"
COUNT = 30


@pytest.fixture(scope="module")
def served(module_folder: Path) -> Iterator[dict[str, str]]:
    """A running `thermocline dev` with messages in its cold tier; `metrics` is where it shows figures."""
    port = free_port()
    arguments = ["dev", "--data", "data", "--namesrv", "127.0.0.1:0", "--listen", "127.0.0.1:0"]
    arguments += ["--set", f"healthPort={port}", "--set", "coldRequestsPerHour=5000"]
    daemon = Daemon(arguments, module_folder)
    try:
        ready = daemon.ready()
        with Producer(namesrv=ready["namesrv"]) as producer:
            producer.send_many(Message(TOPIC, b"body %d" % number, keys=f"k{number}") for number in range(COUNT))
        assert run(["tier", "seal", "-n", ready["namesrv"]]) == 0
        yield ready | {"metrics": f"http://127.0.0.1:{port}/metrics", "url": ready["cold"]}
    finally:
        assert daemon.stop() == 0


def shown(capsys: pytest.CaptureFixture[str], *arguments: str, status: int = 0) -> Any:
    capsys.readouterr()
    assert run([*arguments, "--json"]) == status
    return json.loads(capsys.readouterr().out)


def test_a_bucket_is_listed_read_and_verified_without_its_broker(
    served: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    url = served["url"]
    (row,) = [row for row in shown(capsys, "tier", "ls", url) if row["topic"] == TOPIC]
    assert (row["messages"], row["ttl_ms"], row["quarantined"]) == (COUNT, None, 0)
    assert row["segments"] + row["packs"] == 1
    pieces = shown(capsys, "tier", "ls", TOPIC, url)
    assert shown(capsys, "tier", "ls", url, TOPIC) == pieces  # the order that once was
    assert sum(piece["end_offset"] - piece["start_offset"] for piece in pieces) == COUNT
    found = shown(capsys, "tier", "cat", TOPIC, url, "--count", "100")
    assert shown(capsys, "tier", "cat", url, TOPIC, "--count", "100") == found
    assert sorted(message["body"] for message in found) == sorted(f"body {number}" for number in range(COUNT))
    assert [(message["queue"], message["queue_offset"]) for message in found] == sorted(
        (piece["queue"], offset) for piece in pieces for offset in range(piece["start_offset"], piece["end_offset"])
    )
    queue = pieces[0]["queue"]
    some = shown(capsys, "tier", "cat", url, TOPIC, "--queue", str(queue), "--offset", "1", "--end", "2")
    assert [(message["queue"], message["queue_offset"]) for message in some] == [(queue, 1)]
    for part in ([TOPIC], ["--key", pieces[0]["key"]]):
        (report,) = shown(capsys, "tier", "verify", *part, url)["reports"]
        assert shown(capsys, "tier", "verify", url, *part)["reports"] == [report]
        assert (report["findings"], report["segment_count"] + report["pack_count"]) == ([], 1)
        assert report["read_bytes"] > 0


def test_the_reader_in_examples_reads_a_brokers_bucket(
    served: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    """A live broker's directory, read by a program that imports nothing of ours."""
    url = served["url"]

    def rows(*words: str) -> list[dict[str, Any]]:
        program = Path(__file__).parents[3] / "examples" / "cold_reader.py"
        command = [sys.executable, "-I", str(program), url.removeprefix("file://"), *words]
        done = subprocess.run(command, capture_output=True, check=False, timeout=120)
        assert (done.returncode, done.stderr) == (0, b"")
        return [json.loads(line) for line in done.stdout.splitlines()]

    listed = {row["topic"] for row in shown(capsys, "tier", "ls", url)}
    assert {row["topic"] for row in rows("ls")} == listed
    expected = shown(capsys, "tier", "cat", url, TOPIC, "--count", "100")
    found = rows("cat", TOPIC)
    assert [(row["queue_id"], row["queue_offset"], b64decode(row["body"]).decode()) for row in found] == [
        (message["queue"], message["queue_offset"], message["body"]) for message in expected
    ]
    assert rows("key", TOPIC, "k7") == [row for row in found if row["properties"]["KEYS"] == "k7"]
    assert rows("id", found[-1]["offset_msg_id"]) == found[-1:]


def test_damaged_objects_are_found(served: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    url = served["url"]
    key = shown(capsys, "tier", "ls", url, TOPIC)[0]["key"]
    path = Path(url.removeprefix("file://")) / key
    data = path.read_bytes()
    path.write_bytes(data[:20] + bytes([data[20] ^ 1]) + data[21:])
    try:
        (report,) = shown(capsys, "tier", "verify", url, TOPIC, status=1)["reports"]
        assert [finding["key"] for finding in report["findings"]] == [key]
    finally:
        path.write_bytes(data)


@pytest.mark.parametrize(
    "arguments",
    [
        ["cat", "no-such-topic"],
        ["ls", "no-such-topic"],
        ["verify", "no-such-topic"],
        ["verify", "--key", "no/such/key"],
        ["cat", TOPIC, "--queue", "4711"],
        ["ls", "--broker", "broker-z"],
    ],
)
def test_missing_names_are_errors(
    served: dict[str, str], capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    assert run(["tier", arguments[0], served["url"], *arguments[1:]]) == 1
    out, err = capsys.readouterr()
    assert not out
    assert err
    assert "Traceback" not in err


def test_costs_are_counted_priced_and_forecast(
    served: dict[str, str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    namesrv = ["-n", served["namesrv"]]
    (bill,) = shown(capsys, "tier", "cost", *namesrv)["brokers"]
    puts = {purpose["purpose"]: purpose["put"] for purpose in bill["purposes"]}
    assert puts["ledger"] >= 2
    assert puts["packs"] + puts["segments"] >= 1
    assert bill["storage"]["stored_bytes"] > 0
    assert bill["budget"]["requests_per_hour"] == 5_000
    assert bill["forecast"] is None
    for kind in ("put", "get", "list", "delete"):
        of_topics = sum(topic[kind] + topic[f"shared_{kind}"] for topic in bill["topics"])
        assert of_topics == sum(purpose[kind] for purpose in bill["purposes"]), "own and shared, and nothing besides"
    shares = {topic["topic"]: topic["shared_put"] for topic in bill["topics"]}
    assert shares[TOPIC] > 0
    assert "(none)" in shares
    example = Path(__file__).parents[3] / "tiered" / "cost" / "example_prices.toml"
    prices = tmp_path / "prices.toml"
    prices.write_text(example.read_text().replace("put = 0.005", "put = 1000000.0"))
    answer = shown(capsys, "tier", "cost", TOPIC, "--seal-age", "30m", "--ttl", "7d", "--prices", str(prices), *namesrv)
    (dear,) = answer["brokers"]
    assert dear["cost_since_start"] >= 1_000 * sum(puts.values())
    assert dear["forecast"]["seal_age_ms"] == 30 * 60_000
    assert dear["forecast"]["requests_per_hour"]["put"] > 0
    assert [topic["topic"] for topic in dear["topics"]] == [TOPIC]
    assert run(["tier", "cost", "--forecast", *namesrv]) == 0
    out, err = capsys.readouterr()
    assert "requests an hour" in out
    assert "example" in err
    prices.write_text("put = 1")
    assert run(["tier", "cost", "--prices", str(prices), *namesrv]) == 1


def test_metrics_are_shown(served: dict[str, str]) -> None:
    with urllib.request.urlopen(served["metrics"], timeout=10) as response:
        assert response.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        lines = response.read().decode().splitlines()
    assert f'thermocline_put_messages_total{{topic="{TOPIC}"}} {COUNT}' in lines
    assert "thermocline_broker_writable 1" in lines
    assert 'thermocline_helper_connected{helper="tier"} 1' in lines
    assert "thermocline_tier_outage_seconds 0" in lines
    assert "thermocline_dropped_messages 0" in lines
    assert f'thermocline_tier_waiting_bytes{{topic="{TOPIC}"}} 0' in lines
    assert any(line.startswith('thermocline_store_requests_total{purpose="ledger",kind="put"}') for line in lines)
    of_purposes = sum_of(lines, "thermocline_store_requests_total")
    assert sum_of(lines, "thermocline_topic_store_requests_total") == pytest.approx(of_purposes)
    assert any(line.startswith(f'thermocline_topic_store_errors_total{{topic="{TOPIC}"}}') for line in lines)


def test_explain_names_the_parts_that_keep_a_message(
    served: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    rows = shown(capsys, "tier", "explain", TOPIC, "-n", served["namesrv"])
    for row in rows:
        if row["local"] != "none":
            assert row["why_local"] == "log file 0 is the newest, which always stays"
        if row["cold"] != "none":
            assert row["why_in_bucket"] == "kept for ever"
    (one,) = shown(capsys, "tier", "explain", TOPIC, str(rows[0]["queue"]), "-n", served["namesrv"])
    assert one["queue"] == rows[0]["queue"]
    assert run(["tier", "explain", TOPIC, "-n", served["namesrv"]]) == 0
    assert "why local" in capsys.readouterr().out.replace("_", " ")


def sum_of(lines: list[str], family: str) -> float:
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(f"{family}{{"))
