"""Release ordinals of version texts; the expected numbers are the places in RocketMQ's enumeration."""

from __future__ import annotations

import pytest

from thermocline.remoting.release_ordinal import release_ordinal


@pytest.mark.parametrize(
    ("version", "ordinal"),
    [
        ("5.0.0", 413),
        ("5.0.9", 431),
        ("5.1.0", 433),
        ("5.1.4", 441),
        ("5.2.0", 453),
        ("v5.2.0", 453),
        ("V5_5_0", 513),
        ("5.9.9", 611),
        # of others that of 5.5.0
        ("1.0.8", 513),
        ("5.2.10", 513),
        ("5.10.0", 513),
        ("", 513),
        ("5.x", 513),
    ],
)
def test_the_ordinal_of_a_version(version: str, ordinal: int) -> None:
    assert release_ordinal(version) == ordinal
