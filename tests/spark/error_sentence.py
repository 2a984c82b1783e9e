"""What people read when Spark fails: one sentence, and no traceback of a library before it."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from thermocline.remoting.errors import MQError

LIBRARIES = ("botocore", "aiohttp", "py4j/", "direct cause", "another exception")


def sentence(action: Callable[[], object]) -> str:
    """What people read: an error of ours, raised on the driver or shown by Spark as its last line."""
    from pyspark.errors import PySparkException

    with pytest.raises((PySparkException, MQError)) as failure:
        action()
    if isinstance(failure.value, MQError):
        assert failure.value.__cause__ is None
        assert failure.value.__suppress_context__ or failure.value.__context__ is None
        return one_line(str(failure.value))
    text = str(failure.value)
    lines = [line for line in text.splitlines() if re.match(r"[\w.]+(Error|Exception): ", line)]
    assert lines, text
    # The first error that the text tells of, not the last: causes would stand before it.
    assert lines[0].startswith("thermocline."), text
    before = text[: text.index(lines[0])]
    assert not any(library in before for library in LIBRARIES), before
    return one_line(lines[0].partition(": ")[2])


def one_line(text: str) -> str:
    assert "\n" not in text
    return text
