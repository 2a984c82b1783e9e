"""Each recorded dialogue of an official gRPC client with the official proxy 5.5.0, replayed: the same codes and fields.

`recorded/` has a file for each client; `record.py` makes them, `facts.py` tells their form. `--official-peer` replays
them to the official proxy, which proves the recordings and the replay, but for transaction checks.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.dialogues.grpc.facts import RECORDED
from tests.dialogues.grpc.record import official_endpoint
from tests.dialogues.grpc.replay import Replay
from tests.interop.grpc_programs import make_places
from tests.interop.proxy_daemons import proxy_daemons

pytestmark = pytest.mark.xdist_group("grpc-dialogues")

LANGUAGES = sorted(path.stem for path in RECORDED.glob("*.jsonl"))
SETTINGS = {
    "useEndpointPortFromRequest": "true",
    "minInvisibleTimeMillsForRecv": "1000",
    "grpcClientConsumerMinLongPollingTimeoutMillis": "5000",
    "grpcClientConsumerMaxLongPollingTimeoutMillis": "20000",
}
"""What the recorded proxy had; the poll times are answered in settings."""
LEFT: Mapping[str, str] = {
    "liteSubscriptionQuota": "light topics are not built",
    "maxLiteTopicSize": "light topics are not built",
}
"""Recorded fields that are not here -> the reason. One that is here, too, is a difference."""


def dialogues() -> Iterator[tuple[str, str]]:
    for language in LANGUAGES:
        for scenario in dict.fromkeys(each["scenario"] for each in exchanges(language)):
            yield language, scenario


@pytest.fixture(scope="module")
def endpoint(request: pytest.FixtureRequest, new_module_folder: Callable[[str], Path]) -> Iterator[str]:
    """A proxy before a broker with the topics of every client: ours, or the official one."""
    directory = new_module_folder("grpc-dialogues")
    if request.config.getoption("--official-peer"):
        with official_endpoint(directory) as (namesrv, address):
            for language in LANGUAGES:
                make_places(namesrv, language)
            yield address
    else:
        with proxy_daemons(directory, settings=SETTINGS) as running:
            for language in LANGUAGES:
                make_places(running.namesrv, language)
            yield running.endpoint


def exchanges(language: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (RECORDED / f"{language}.jsonl").read_text().splitlines()]


def test_there_is_a_recording_of_each_client() -> None:
    assert LANGUAGES == ["Go", "Java", "Node", "Python", "Rust"]


@pytest.mark.parametrize(("language", "scenario"), list(dialogues()))
async def test_answers_have_the_recorded_form(
    request: pytest.FixtureRequest, endpoint: str, language: str, scenario: str
) -> None:
    is_official = request.config.getoption("--official-peer")
    if is_official and scenario == "check":
        pytest.skip("the official proxy sends a replayed producer no check within a minute")
    omitted = () if is_official else LEFT
    recorded = exchanges(language)
    dialogue = [each for each in recorded if each["scenario"] == scenario]
    async with Replay(endpoint, f"{language}-{scenario}", dialogue, others=recorded, omitted=omitted) as replay:
        assert await replay.differences() == []
