"""What does a broker use that has nothing to do, before and after it has seen transactions, timers and POP?

`python -m benchmarks.idle [--seconds 30]`

This broker (`thermocline dev`, its cold tier in a directory: broker, NameServer and helpers) and the official one, each
measured alone: the share of a core that all of its processes use together, some time after its start, and again some
time after the traffic of `feature_traffic.py`. No client is connected meanwhile.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from pathlib import Path

from benchmarks.broker_under_test import BrokerUnderTest, start_official, start_thermocline
from benchmarks.feature_traffic import PROPERTIES, use_features
from tooling.java_libraries import OFFICIAL_ROCKETMQ, find_jars
from tooling.official_rocketmq import OfficialSoftware
from tooling.system_packages import find_java_home

SETTLE_S = 20.0


def main() -> int:
    """Measure one after the other, and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.idle", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=30.0, help="measured seconds (default 30)")
    parser.add_argument("--directory", type=Path, help="where stores are written (default: the temporary directory)")
    options = parser.parse_args()
    software = OfficialSoftware(java_home=find_java_home(with_compiler=False), jars=find_jars(OFFICIAL_ROCKETMQ))
    with tempfile.TemporaryDirectory(prefix="thermocline-bench-", dir=options.directory) as name:
        directory = Path(name)
        with start_thermocline(directory / "ours", properties=PROPERTIES) as broker:
            _measure(broker, options.seconds)
        with start_official(software, directory / "official", properties=PROPERTIES) as broker:
            _measure(broker, options.seconds)
    return 0


def _measure(broker: BrokerUnderTest, seconds: float) -> None:
    before = _share(broker, seconds)
    use_features(broker.namesrv)
    after = _share(broker, seconds)
    print(f"{broker.kind}: {before:.2%} of a core before, {after:.2%} after ({os.cpu_count()} cores)", flush=True)


def _share(broker: BrokerUnderTest, seconds: float) -> float:
    time.sleep(SETTLE_S)
    cpu_s, started_s = broker.cpu_s(), time.monotonic()
    time.sleep(seconds)
    return (broker.cpu_s() - cpu_s) / (time.monotonic() - started_s)


if __name__ == "__main__":
    raise SystemExit(main())
