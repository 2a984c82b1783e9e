"""docs/spark.md names every option of reads, streams, writes and stores, with its default; docs/commands.md shows the
example of prices as it is.
"""

from __future__ import annotations

import re
from dataclasses import fields

from tests.docs.pages import DOCS, TableRow, code_blocks, table_rows
from thermocline.spark.access import store_options
from thermocline.spark.reading import source_options
from thermocline.spark.reading.source_options import parse_size_bytes
from thermocline.spark.streaming import stream_options
from thermocline.spark.writing import write_options
from thermocline.spark.writing.write_options import WriteOptions
from thermocline.tiered.cost import PriceTable

PAGE = DOCS / "spark.md"
READ, STREAM, WRITE, STORE = "Options", "Streaming", "Writing to a topic", "Reaching the bucket"
OF_STORES = {"s3.*", "fs.s3a.*"}


def rows_under(heading: str, column: str = "option") -> dict[str, TableRow]:
    """Rows of options under a heading, by each name that is in their first cell."""
    rows = [row for row in table_rows(PAGE) if row.headings[-1] == heading and column in row.cells]
    return {name: row for row in rows for name in re.findall(r"`([^`]+)`", row.cells[column])}


def test_each_option_of_a_read_has_its_row() -> None:
    bodies = set(source_options.NAMES_BESIDE) - set(source_options.STREAM_NAMES)
    assert rows_under(READ).keys() - OF_STORES == {*source_options.NAMES, *bodies}


def test_each_option_of_a_stream_has_its_row() -> None:
    rows = rows_under(STREAM)
    assert set(source_options.STREAM_NAMES) <= rows.keys()
    others = rows.keys() - OF_STORES - set(source_options.STREAM_NAMES)
    assert others <= {*source_options.NAMES, *source_options.NAMES_BESIDE}
    (text,) = re.findall(r"\n(`endingOffsets`.*?)are refused", PAGE.read_text(), re.DOTALL)
    assert set(re.findall(r"`(\w+)`", text)) - {"engine", "metrics"} == set(stream_options.OF_BATCHES)
    for name, default in (
        ("maxBytesPerTrigger", stream_options.TRIGGER_BYTES_DEFAULT),
        ("brokerTimeoutMs", stream_options.BROKER_TIMEOUT_MS_DEFAULT),
    ):
        assert parse_size_bytes(rows[name].cells["default"].strip("`"), option=name) == default


def test_each_option_of_a_write_has_its_row() -> None:
    rows = rows_under(WRITE, "option of a write")
    assert rows.keys() == set(write_options.NAMES)
    defaults = {item.name: item.default for item in fields(WriteOptions)}
    assert rows["producerGroup"].cells["default"] == f"`{defaults['producer_group']}`"
    for name, field in (("batchBytes", "batch_bytes"), ("maxMessageBytes", "message_bytes_max")):
        assert parse_size_bytes(rows[name].cells["default"].strip("`"), option=name) == defaults[field]
    for name in ("sendTimeout", "attemptTimeout", "noteRetention"):
        field = re.sub("(?=[A-Z])", "_", name).lower() + "_ms"
        assert rows[name].cells["default"] == f"`{defaults[field]}`", name


def test_sizes_of_a_read_have_the_defaults_that_the_page_says() -> None:
    rows = rows_under(READ)
    for name, default in (
        ("maxPartitionBytes", source_options.PARTITION_BYTES_DEFAULT),
        ("fetchBytes", source_options.FETCH_BYTES_DEFAULT),
        ("rowsPerBatch", source_options.BATCH_ROWS_DEFAULT),
    ):
        assert parse_size_bytes(rows[name].cells["default"].strip("`"), option=name) == default


def test_each_option_of_a_store_has_its_row() -> None:
    named = {name.lower() for name in rows_under(STORE)} - {"fs.s3a.*"}
    assert {name for name in named if name.startswith("s3.")} == set(store_options.NAMES)


def test_the_example_of_prices_is_the_one_that_counts() -> None:
    (block,) = (block for block in code_blocks(DOCS / "commands.md", "toml") if "per_1000_requests" in block.text)
    assert PriceTable.parse(block.text, source="page") == PriceTable.example()
