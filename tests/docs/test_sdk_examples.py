"""The examples in docs/sdk.md run as they stand, one after another, and its tables are true."""

from __future__ import annotations

import dataclasses
import enum
import inspect
from collections.abc import Iterator

import pytest

import thermocline
from tests.docs.pages import DOCS, CodeBlock, TableRow, code, code_blocks, table_rows
from thermocline.client.admin.admin_client import AdminClient
from thermocline.client.admin.async_admin_client import AsyncAdminClient
from thermocline.client.blocking import BlockingHalf
from thermocline.client.consumer.allocation import AllocationStrategy
from thermocline.client.consumer.options import PopConsumerOptions, PullConsumerOptions, PushConsumerOptions
from thermocline.client.options import ClientOptions
from thermocline.client.producer.options import ProducerOptions
from thermocline.client.producer.producer import Producer
from thermocline.client.producer.transactions import TransactionProducerOptions
from thermocline.client.testing import FakeBroker

pytestmark = pytest.mark.xdist_group("docs-sdk")  # one example reads what an earlier one has sent

PAGE = DOCS / "sdk.md"
DOCUMENTED_ADDRESS = "127.0.0.1:9876"
OPTIONS = {
    "option of a producer": ProducerOptions,
    "option of a transaction producer": TransactionProducerOptions,
    "option of a push consumer": PushConsumerOptions,
    "option of a pull consumer": PullConsumerOptions,
    "option of a POP consumer": PopConsumerOptions,
    "option of every client": ClientOptions,
}
EXAMPLES = [
    pytest.param(block, id=f"line {block.line} {block.headings[-1]}".replace(" ", "-"))
    for block in code_blocks(PAGE, "python")
]


@pytest.fixture(scope="module")
def broker() -> Iterator[FakeBroker]:
    with FakeBroker(property_filter=True) as broker:
        broker.create_topic("orders")
        yield broker


@pytest.mark.parametrize("block", EXAMPLES)
def test_an_example_runs(block: CodeBlock, broker: FakeBroker) -> None:
    assert len(code_blocks(PAGE, "python")) > 10
    text = block.text.replace(DOCUMENTED_ADDRESS, broker.namesrv_address)
    exec(compile(text, f"{PAGE.name}:{block.line}", "exec"), {"__name__": "__main__"})


def option_rows() -> Iterator[tuple[type[ClientOptions], str, TableRow]]:
    for row in table_rows(PAGE):
        for column, options in OPTIONS.items():
            if column in row.cells:
                yield options, code(row.cells[column]), row


def test_options_have_the_defaults_that_the_page_says() -> None:
    rows = list(option_rows())
    assert {options for options, _, _ in rows} == set(OPTIONS.values())
    for options, name, row in rows:
        default = getattr(options(), name)
        if isinstance(default, enum.IntEnum):
            default = default.name
        elif isinstance(default, enum.Enum):
            default = default.value
        elif isinstance(default, AllocationStrategy):
            default = default.name
        assert row.cells["default"] == (f"`{default}`" if default != "" else "empty"), name


def test_each_option_has_its_row() -> None:
    """In the table of its client, or in one whose options it has, too, as the text says."""
    named: dict[type[ClientOptions], set[str]] = {}
    for options, name, _ in option_rows():
        named.setdefault(options, set()).add(name)
    shared = {TransactionProducerOptions: ProducerOptions, PullConsumerOptions: PushConsumerOptions}
    for options in OPTIONS.values():
        rows = named[options] | named[ClientOptions] | named.get(shared.get(options, options), set())
        assert sorted({field.name for field in dataclasses.fields(options)} - rows) == [], options.__name__


def names_in(rows: list[TableRow]) -> set[str]:
    return {name for row in rows for name in row.cells["methods"].replace("`", "").split()}


def public_methods(owner: type) -> set[str]:
    return {name for name, _ in inspect.getmembers(owner, callable) if not name.startswith("_")}


def test_every_method_of_the_admin_client_is_named() -> None:
    named = names_in([row for row in table_rows(PAGE) if "family" in row.cells])
    assert named == public_methods(AdminClient) - public_methods(BlockingHalf)
    assert named == public_methods(AsyncAdminClient) - {"start", "close"}


def test_every_method_of_the_fake_broker_is_named() -> None:
    named = names_in([row for row in table_rows(PAGE) if "to" in row.cells])
    assert named == public_methods(FakeBroker) - {"start", "close"}


def test_every_way_to_send_is_named() -> None:
    named = {code(row.cells["way to send"]) for row in table_rows(PAGE) if "way to send" in row.cells}
    assert named == {name for name in public_methods(Producer) if name.startswith("send")}


def test_names_are_those_of_the_package() -> None:
    for row in table_rows(PAGE):
        if "what to do" in row.cells:
            assert issubclass(getattr(thermocline, code(row.cells["class"])), thermocline.MQError)
    fields = {field.name for options in OPTIONS.values() for field in dataclasses.fields(options)}
    assert {name for _, name, _ in option_rows()} <= fields
