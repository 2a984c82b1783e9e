"""Options of a write: names that it does not know are refused, as those of a read are."""

from __future__ import annotations

import pytest

from thermocline.remoting.errors import InvalidRequestError
from thermocline.spark.writing.write_options import WriteOptions, write_options_from


def write(**options: str) -> WriteOptions:
    return write_options_from({"namesrvAddr": "127.0.0.1:9876", "topic": "orders"} | options)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("deduplciate", "is it deduplicate[?]"),
        ("DEDUPLICATED", "is it deduplicate[?]"),
        ("path", "name it in the option topic"),
        ("zzz", "docs/spark.md"),
    ],
)
def test_a_name_that_is_no_option_is_refused(name: str, hint: str) -> None:
    with pytest.raises(InvalidRequestError, match=f"no option '{name}'; .*{hint}"):
        write(**{name: "true"})


def test_stream_options_of_spark_in_any_case_are_accepted_too() -> None:
    beside = {"checkpointLocation": "/data/checkpoint", "queryName": "copy", "DEDUPLICATE": "true"}
    assert write(**beside) == write(deduplicate="true")
