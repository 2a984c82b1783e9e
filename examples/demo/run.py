"""The whole path on real data: producer -> hot tier -> bucket -> consumers -> Spark, every message checked.

Every flight that left New York City in 2013 becomes a message (JSON body, key = tail number, tag = carrier, ordered by
origin airport), every weather reading one of a second topic with another time to live. See README.md of the project.

    python examples/demo/run.py [--cold file|minio|versitygw|localstack|moto] [--grpc-client DIRECTORY] [--replicas N]

With `--grpc-client` the weather goes through a proxy: RocketMQ's Python client for gRPC, which is in that directory,
sends it and receives it (grpc_weather.py).

With `--replicas` the broker is a set of so many under three controllers, whose masters are killed while flights are
sent (failures.py), with a picture of throughput and roles.
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

from thermocline import Producer

sys.path.insert(0, str(Path(__file__).parent))

from cluster import ColdStore, DemoCluster, DevBroker, cold_store
from dataset import FLIGHT_COUNT, WEATHER_COUNT, Dataset, DelayRow
from followers import FLIGHTS, Follower, wait_until
from replica_set import ReplicaSet
from sending import WEATHER, send_everything
from spark_answer import spark_delays

FLIGHTS_TTL_MS, WEATHER_TTL_MS = 30 * 86_400_000, 7 * 86_400_000
MIB, GIB = 1 << 20, 1 << 30
REPLICAS_MAX = 5


def queue_states(broker: DemoCluster, topic: str) -> list[dict[str, int]]:
    """Local and cold ranges of a topic's queues."""
    states: list[dict[str, int]] = broker.tier_status(topic)["topics"][0]["queues"]
    return states


def wait_until_cold(broker: DemoCluster) -> None:
    """Seal everything, then wait until local retention has let go of what is committed."""
    broker.admin.tier_seal()

    def all_committed() -> bool:
        states = [state for topic in (FLIGHTS, WEATHER) for state in queue_states(broker, topic)]
        return all(state["coldEnd"] == state["localEnd"] for state in states if state["localEnd"])

    def history_is_gone() -> bool:
        return all(state["localMin"] > 0 for state in queue_states(broker, FLIGHTS) if state["localEnd"])

    wait_until(all_committed, "everything to be committed to the cold tier")
    wait_until(history_is_gone, "local files to be deleted")


def compare(expected: list[DelayRow], found: list[DelayRow]) -> None:
    """Fail loudly on the first row in which Spark and the files differ."""
    if len(expected) != len(found):
        raise SystemExit(f"demo FAILED: Spark found {len(found)} rows, the files hold {len(expected)}")
    for want, have in zip(expected, found, strict=True):
        same = (want.carrier, want.month, want.flights, want.delay_minutes, want.wind_readings) == (
            have.carrier,
            have.month,
            have.flights,
            have.delay_minutes,
            have.wind_readings,
        )
        # Sums of decimals depend on their order in the last digits.
        if not same or abs(want.wind_speed_sum - have.wind_speed_sum) > 1e-6 * max(1.0, want.wind_speed_sum):
            raise SystemExit(f"demo FAILED: the files say {want}, Spark says {have}")


def run(broker: DemoCluster, cold: ColdStore, data: Dataset, grpc_client: Path | None, console: Console) -> Table:
    """The demo proper; returns its report."""
    has_repeats = isinstance(broker, ReplicaSet)  # what was not answered is sent again
    report = Table(title="From a producer to Spark, every message accounted for", show_header=False)
    try:
        with Producer(group="demo-producer", namesrv=broker.name_server, send_timeout_ms=60_000) as producer:
            live: Follower | None = None
            try:
                for topic, ttl_ms in ((FLIGHTS, FLIGHTS_TTL_MS), (WEATHER, WEATHER_TTL_MS)):
                    broker.admin.create_topic(topic, queue_nums=4)
                    broker.admin.set_ttl(topic, ttl_ms)
                live = Follower("demo-live", broker.name_server, allows_repeats=has_repeats)
                flights, readings, sent_rows = send_everything(data, producer, broker, grpc_client, console)
                if (flights, readings) != (FLIGHT_COUNT, WEATHER_COUNT):
                    raise SystemExit(f"demo FAILED: the data set holds {flights} flights and {readings} readings")
                live.check(flights)
            finally:
                if live is not None:
                    live.close()
        with console.status("waiting until history is in the bucket and gone from local disk ..."):
            wait_until_cold(broker)
        local = sum(state["localEnd"] - state["localMin"] for state in queue_states(broker, FLIGHTS))
        with console.status("a new group starts at the first message ..."):
            newcomer = Follower("demo-newcomer", broker.name_server, allows_repeats=has_repeats)
            try:
                newcomer.check(flights)
            finally:
                newcomer.close()
        served_before = broker.served_bytes()
        with console.status("Spark reads the bucket ..."):
            answer = spark_delays(cold, flights_topic=FLIGHTS, weather_topic=WEATHER, has_repeats=has_repeats)
        served_by_broker = broker.served_bytes() - served_before
        compare(data.delays(), answer.rows)
        if (answer.flights_read, answer.weather_read) != (flights, readings):
            raise SystemExit(f"demo FAILED: Spark read {answer.flights_read} flights, {answer.weather_read} readings")
        if served_by_broker:
            raise SystemExit(f"demo FAILED: {served_by_broker} message bytes passed the broker while Spark read")
        tier = broker.tier_status()
    finally:
        status = broker.stop()
    if status != 0:
        raise SystemExit(f"demo FAILED: the broker ended with status {status}")
    topics = [topic for topic in tier["topics"] if topic["segments"]]
    raw, stored = sum(topic["rawBytes"] for topic in topics), sum(topic["storedBytes"] for topic in topics)
    segments = sum(topic["segments"] for topic in topics)
    puts = tier["requests"]["put"] + tier["requests"]["create_if_absent"]
    rows = (
        *sent_rows,
        ("consumed live, in order", f"{live.count:,} flights" + (f", {live.repeated:,} again" if has_repeats else "")),
        ("local messages left", f"{local:,} of {flights:,} flights"),
        (
            "consumed by a newcomer, cold then hot",
            f"{newcomer.count:,} flights, {newcomer.body_bytes / newcomer.seconds / MIB:,.1f} MiB/s of bodies",
        ),
        ("read by Spark from the bucket", f"{answer.flights_read + answer.weather_read:,} in {answer.seconds:.1f} s"),
        ("Spark tasks for the flights", f"{answer.partitions}"),
        ("message bytes from the broker meanwhile", f"{served_by_broker}"),
        ("carrier-months compared with the files", f"{len(answer.rows)}"),
        ("segments, objects", f"{segments}, {segments * 3}"),
        ("bytes raw, stored", f"{raw:,}, {stored:,} ({raw / stored:.1f} : 1)"),
        ("PUTs (all kinds, small demo segments)", f"{puts}, {puts / (raw / GIB):,.0f} per GiB raw"),
    )
    for name, value in rows:
        report.add_row(name, value)
    return report


def main() -> None:
    """Run the demo; `demo ok` is its last line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cold", choices=("file", "minio", "versitygw", "localstack", "moto"), default="file")
    parser.add_argument("--grpc-client", type=Path, metavar="DIRECTORY")
    parser.add_argument("--replicas", type=int, metavar="N", help="at least 2")
    parser.add_argument("--cache", type=Path, default=Path(".cache/demo"))
    options = parser.parse_args()
    if options.replicas is not None and not 2 <= options.replicas <= REPLICAS_MAX:
        parser.error(f"--replicas takes 2 to {REPLICAS_MAX}")
    console = Console()
    started = time.monotonic()
    data = Dataset.fetch(options.cache)
    with tempfile.TemporaryDirectory(prefix="thermocline-demo-") as name:
        folder = Path(name)
        with cold_store(options.cold, folder) as cold:
            if options.replicas is None:
                broker: DemoCluster = DevBroker(folder, cold.broker_url)
            else:
                broker = ReplicaSet(folder, cold.broker_url, size=options.replicas)
            report = run(broker, cold, data, options.grpc_client, console)
    report.add_row("cold tier", options.cold)
    report.add_row("whole demo", f"{time.monotonic() - started:.0f} s")
    console.print(report)
    print("demo ok")


if __name__ == "__main__":
    main()
