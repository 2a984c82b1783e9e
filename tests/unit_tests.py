"""The fast inner loop, `make test-unit`: tests that start no program, chosen by what they use and where they are.

A test belongs to it unless it has a marker of `MARKERS`, uses a fixture of `FIXTURES`, or is in a place of `FOLDERS` or
`LONG`.
While it runs, a test that starts a program other than this Python fails (`ProgramGuard`).
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

MARKERS = ("go", "java", "spark", "s3", "crash", "full", "soak")
FIXTURES = frozenset(
    {"java_home", "jdk_home", "official_jars", "spark_s3a_jars", "c_compiler", "s3_servers", "s3_server", "s3_bucket"}
    | {"case_count", "any_s3_server", "any_s3_bucket", "private_s3_server", "the_session"}
)
FOLDERS = (
    "benchmarks",
    "boundary",
    "cli",
    "crash",
    "dialogues",
    "docs",
    "interop",
    "localstack",
    "packaging",
    "spark",
    "tooling",
)
"""Folders of `tests/` whose tests need whole brokers, servers, clients or Spark."""

LONG = (
    "broker/controlled/test_controlled_broker.py",
    "broker/settings/test_official_settings.py",
    "broker/test_role_switch.py",
    "broker/test_role_switch_cold.py",
    "broker/test_role_switch_services.py",
    "client/test_tls.py",
    "controller/test_in_name_server.py",
    "filters/test_official_filter.py",
    "remoting/connections/test_stop_signals.py",
    "replication/simulation",
    "replication/test_replica_set.py",
    "store/test_java_stores.py",
    "test_folders.py",
    "test_layers.py",
    "test_offset_types.py",
    "test_start_costs.py",
    "tiered/bill",
    "tiered/cost/test_budgeted_sealing.py",
    "tiered/doctor",
    "tiered/indexes/test_birth_lookups.py",
    "tiered/lookups/test_lookup_costs.py",
    "tiered/packs/test_dead_bytes.py",
    "tiered/purge",
    "tiered/reading/test_first_byte_costs.py",
    "tiered/reading/test_read_ranges.py",
    "tiered/scrub",
    "tiered/sealing/test_local_files.py",
    "tiered/test_golden_readers.py",
    "tiered/test_stand_alone_reader.py",
    "timers/test_power_cut.py",
    "transactions/test_power_cut.py",
)
"""Folders and files whose tests compute for seconds each (checks of the whole source, replica sets, power cuts, and
whole tiers in memory that go through months or damage) or start commands and daemons."""

TESTS = Path(__file__).parent
PLACES = frozenset(TESTS / place for place in (*FOLDERS, *LONG))


@functools.cache
def is_without_unit_tests(path: Path) -> bool:
    """Whether a file or folder is in one of `FOLDERS` or `LONG`."""
    return not PLACES.isdisjoint((path, *path.parents))


def is_unit(item: pytest.Item) -> bool:
    """Whether `make test-unit` runs a test."""
    return (
        not is_without_unit_tests(item.path)
        and not any(item.get_closest_marker(name) for name in MARKERS)
        and FIXTURES.isdisjoint(getattr(item, "fixturenames", ()))
    )


class ProgramGuard:
    """Fails a test that starts a program other than this Python, while the test runs; pytest itself may start some."""

    def __init__(self) -> None:
        self._is_test_running = False
        sys.addaudithook(self._check)

    @contextlib.contextmanager
    def during_a_test(self) -> Iterator[None]:
        """Refuse programs in this block."""
        self._is_test_running = True
        try:
            yield
        finally:
            self._is_test_running = False

    def _check(self, event: str, arguments: tuple[object, ...]) -> None:
        if event != "subprocess.Popen" or not self._is_test_running:
            return
        executable, words = arguments[0], arguments[1]
        program = str(executable or (words[0] if isinstance(words, list | tuple) else words))
        if os.path.realpath(program) != os.path.realpath(sys.executable):
            pytest.fail(f"a test of `make test-unit` starts no program, and this one starts {program}", pytrace=False)
