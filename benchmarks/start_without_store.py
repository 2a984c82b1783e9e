"""Question: how long after its start does a broker serve, when its object store does not answer as it should?

Workload: `thermocline dev` with history in versitygw, stopped, and started again `--rounds` times for each condition of
the store, in turn: it answers; nothing listens at its port (refused); it accepts connections and answers nothing
(silent); every answer comes 0.5 s late (slow); every answer is HTTP 503 (errors). Measured: seconds from the start of
the process until its line `ready`, NameServer and interpreter included; then a second of sends and of pulls of recent
messages must be answered. What a reader of history gets meanwhile is the matter of
`tests/crash/test_start_without_store.py`.

Exit status 1 when the slowest start of a condition took more than 5 s, or an answer was wrong.

    python -m benchmarks.start_without_store [--rounds 5]
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.broker_under_test import make_cold_tier, start_thermocline
from benchmarks.command import run_command
from benchmarks.load_generator import LoadShape, build_load_generator, run_load
from benchmarks.markdown_table import markdown_table, spread
from benchmarks.verdicts import Verdict, show_verdicts
from thermocline.localstack import start_server

ANSWERS, REFUSED, SILENT, SLOW, ERRORS = "answers", "refused", "silent", "slow", "errors"
CONDITIONS = (ANSWERS, REFUSED, SILENT, SLOW, ERRORS)
SLOW_ANSWER_S = 0.5
READY_WANTED_S = 5.0
FILL_S = 4.0
TOPIC = "StartBench"
SETTINGS = {"coldSegmentBytes": str(8 << 20), "coldSealAgeMs": "2000"}
BUSY = b"<Error><Code>SlowDown</Code><Message>by the relay</Message></Error>"
BUSY_ANSWER = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/xml\r\nContent-Length: %d\r\n"
    b"Connection: close\r\n\r\n%s" % (len(BUSY), BUSY)
)


class Relay:
    """A TCP relay before the store, in a thread of its own; `condition` holds for connections made from then on."""

    def __init__(self, host: str, port: int) -> None:
        self._behind = (host, port)
        self.condition = ANSWERS
        self.port = 0
        self._loop = asyncio.new_event_loop()
        self._server: asyncio.Server | None = None
        self._thread = threading.Thread(target=self._loop.run_forever, name="relay", daemon=True)

    def __enter__(self) -> Relay:
        self._thread.start()
        self.set_condition(ANSWERS)
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def set_condition(self, condition: str) -> None:
        """Treat new connections so from now on; the broker closes those that are open."""
        asyncio.run_coroutine_threadsafe(self._change(condition), self._loop).result()

    async def _change(self, condition: str) -> None:
        self.condition = condition
        if condition == REFUSED:
            await self._close()
        elif self._server is None:
            self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
            self.port = self._server.sockets[0].getsockname()[1]

    async def _close(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError), contextlib.closing(writer):
            if self.condition == SILENT:
                while await reader.read(1 << 16):
                    pass
            elif self.condition == ERRORS:
                await reader.read(1 << 16)
                writer.write(BUSY_ANSWER)
                await writer.drain()
            else:
                delay_s = SLOW_ANSWER_S if self.condition == SLOW else 0.0
                behind, to_behind = await asyncio.open_connection(*self._behind)
                with contextlib.closing(to_behind):
                    await asyncio.gather(_pipe(reader, to_behind, 0.0), _pipe(behind, writer, delay_s))


async def _pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, delay_s: float) -> None:
    with contextlib.suppress(OSError):
        while received := await reader.read(1 << 16):
            if delay_s:
                await asyncio.sleep(delay_s)
            writer.write(received)
            await writer.drain()
        writer.write_eof()


def main() -> int:
    """Measure and print; 1 when a start was too slow or an answer was wrong."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.start_without_store")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    build_load_generator()
    with tempfile.TemporaryDirectory() as name, _store_behind_relay(Path(name)) as (url, relay):
        directory = Path(name)
        taken: dict[str, list[float]] = {condition: [] for condition in CONDITIONS}
        error_count = _start(directory, url, seconds=FILL_S)[1]
        for number in range(options.rounds):
            for condition in CONDITIONS:
                relay.set_condition(condition)
                took_s, errors = _start(directory, url, seconds=1.0)
                print(f"round {number + 1}/{options.rounds} {condition}: ready after {took_s:.2f} s", flush=True)
                taken[condition].append(took_s)
                error_count += errors
            relay.set_condition(ANSWERS)
    rows = [[condition, spread(times, ".1f")] for condition, times in taken.items()]
    print(markdown_table(["the store", "s until ready"], rows))
    slowest = [Verdict(f"slowest start, {name}", max(times), READY_WANTED_S, "s") for name, times in taken.items()]
    return show_verdicts([*slowest, Verdict("runs with wrong answers", error_count, 0)])


@contextlib.contextmanager
def _store_behind_relay(directory: Path) -> Iterator[tuple[str, Relay]]:
    with start_server("versitygw", directory / "s3") as server:
        url = make_cold_tier(server)
        host, _, port = server.endpoint.removeprefix("http://").partition(":")
        with Relay(host, int(port)) as relay:
            yield url.replace(server.endpoint, f"http://127.0.0.1:{relay.port}"), relay


def _start(directory: Path, url: str, *, seconds: float) -> tuple[float, int]:
    """Seconds from the start of the process until `ready`; how many of the two loads after that had a wrong answer."""
    started_s = time.monotonic()
    with start_thermocline(directory / "broker", properties=SETTINGS, cold_url=url) as broker:
        took_s = time.monotonic() - started_s
        shapes = (LoadShape(connections=4, window=16), LoadShape(mode="pull", connections=1, window=1))
        runs = [run_load(s, address=broker.address, topic=TOPIC, seconds=seconds, warm_s=0.2) for s in shapes]
    return took_s, sum(not run.is_clean for run in runs)


if __name__ == "__main__":
    run_command(main)
