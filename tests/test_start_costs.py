"""What the processes of a broker define when they start: a data class takes 0.6 ms of computing, a struct 0.014 ms."""

from __future__ import annotations

import subprocess
import sys

import pytest

COUNT = """
import importlib, sys
importlib.import_module(sys.argv[1])
print(*sorted(
    f"{kind.__module__}.{kind.__name__}"
    for name, module in sys.modules.items() if name.startswith("thermocline")
    for kind in vars(module).values()
    if isinstance(kind, type) and kind.__module__ == name and "__dataclass_fields__" in vars(kind)
))
"""


@pytest.mark.parametrize(
    ("module", "count_max"),
    [
        ("thermocline.broker.main", 85),
        ("thermocline.broker.tier_process.tier_process", 85),
        ("thermocline.broker.helpers.index_process", 35),
    ],
)
def test_records_of_a_process_are_structs(module: str, count_max: int) -> None:
    """Data classes are for what `dataclasses.replace` and `fields` read, such as settings."""
    done = subprocess.run([sys.executable, "-c", COUNT, module], capture_output=True, text=True, check=True, timeout=60)
    found = done.stdout.split()
    assert "thermocline.tiered.budgets.tier_config.TierConfig" in found
    assert len(found) <= count_max, "make the new ones msgspec.Struct: " + "\n".join(found)
