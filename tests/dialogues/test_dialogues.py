"""Each recorded dialogue with the official NameServer and broker, replayed here: answers have the recorded form.

The recordings hold what official clients of release 5.5.0 and `mqadmin` asked (script.py tells their form). All are
replayed to one broker, those of clients side by side, then the commands one after another, as they were recorded.
`--official-peer` replays them to the official broker instead, which proves the recordings and the replay.

Differences that are left
  - `LEFT` names them with the reason. They are expected strictly: when one is gone, its line has to go too.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path

import pytest

from tests.dialogues.live_cluster import LiveCluster, live_cluster
from tests.dialogues.replay import Replay, outcomes_by_code
from tests.dialogues.script import RECORDED, read_script
from tests.interop.cluster import BROKER_NAME, official_daemons, thermocline_daemons
from thermocline.namesrv.name_server_config import NameServerConfig
from thermocline.namesrv.server import NameServer

pytestmark = pytest.mark.xdist_group("dialogues")  # one replay of all serves every test

CLIENTS = sorted(path.stem for path in RECORDED.glob("[A-Z]*.jsonl"))
BROKERS = sorted(path.stem for path in RECORDED.glob("broker_*.jsonl"))


def first_connection(path: Path) -> int:
    """Connections were numbered through all recordings, so the lowest one tells when a recording was made."""
    return min((step[1] for step in read_script(path) if step[0] == "open"), default=0)


COMMANDS = [f"mqadmin/{path.stem}" for path in sorted((RECORDED / "mqadmin").glob("*.jsonl"), key=first_connection)]
LEFT: Mapping[str, str] = {}
OVER_EVERYTHING = frozenset(
    {"mqadmin/consumerProgress_all", "mqadmin/exportMetrics", "mqadmin/statsAll_active", "mqadmin/topicList_cluster"}
)
"""Commands whose requests depend on all that the recorded broker held, from other clients too."""
SETTINGS = {
    "traceTopicEnable": "true",
    # Retries and delays take long in the recordings, and tell nothing more for it.
    "messageDelayLevel": " ".join(["1s"] * 18),
    "enablePropertyFilter": "true",
    "transactionTimeOut": "3000",
    "transactionCheckInterval": "5000",
}
LIVE_CONNECTION = 191
"""The consumer that stayed connected while commands were recorded."""


@pytest.fixture(scope="module")
def is_official(request: pytest.FixtureRequest) -> bool:
    """Whether the dialogues are replayed to the official broker."""
    return bool(request.config.getoption("--official-peer"))


@pytest.fixture(scope="module")
def addresses(request: pytest.FixtureRequest, is_official: bool, module_folder: Path) -> Iterator[Mapping[str, str]]:
    if is_official:
        software = request.getfixturevalue("official_software")
        with official_daemons(software, module_folder, properties=SETTINGS) as daemons:
            yield {"namesrv": daemons.namesrv, "broker": daemons.broker_address}
    else:
        with thermocline_daemons(module_folder, settings=SETTINGS) as daemons:
            yield {"namesrv": daemons.namesrv, "broker": daemons.broker_address}


async def replay_all(addresses: Mapping[str, str]) -> dict[str, list[str]]:
    """The differences of each dialogue: those of clients side by side, then those of commands one after another."""
    live: LiveCluster | None = None
    every_outcome = outcomes_by_code(read_script(RECORDED / f"{name}.jsonl") for name in (*CLIENTS, *COMMANDS))

    async def one(name: str) -> list[str]:
        replay = Replay(
            read_script(RECORDED / f"{name}.jsonl"),
            addresses=addresses,
            broker_name=BROKER_NAME,
            live=None if live is None else {LIVE_CONNECTION: live.peer},
            live_message_id="" if live is None else live.message_id,
            outcomes=every_outcome if name in OVER_EVERYTHING else None,
        )
        try:
            return await replay.run()
        except Exception as error:  # noqa: BLE001 - the end of a replay: it becomes a difference
            return [*replay.differences, f"{type(error).__name__}: {error}"]

    results = await asyncio.gather(*(one(name) for name in CLIENTS))
    live = await live_cluster(addresses)
    differences = dict(zip(CLIENTS, results, strict=True)) | {name: await one(name) for name in COMMANDS}
    live.peer.connection.close()
    return differences


@pytest.fixture(scope="module")
def differences(addresses: Mapping[str, str]) -> dict[str, list[str]]:
    return asyncio.run(replay_all(addresses))


@pytest.mark.parametrize("name", [*CLIENTS, *COMMANDS])
def test_answers_have_the_recorded_form(name: str, differences: dict[str, list[str]], is_official: bool) -> None:
    if name in LEFT and not is_official:
        assert differences[name], f"no difference is left, so its line has to go: {LEFT[name]}"
    else:
        assert differences[name] == []


@pytest.fixture
async def name_server() -> AsyncIterator[str]:
    server = NameServer(NameServerConfig(listen_host="127.0.0.1", listen_port=0))
    port = await server.start()
    yield f"127.0.0.1:{port}"
    await server.close()


@pytest.mark.parametrize("name", BROKERS)
async def test_a_broker_is_registered_as_recorded(name: str, name_server: str) -> None:
    replay = Replay(
        read_script(RECORDED / f"{name}.jsonl"), addresses={"namesrv": name_server}, broker_name=BROKER_NAME
    )
    assert await replay.run() == []
