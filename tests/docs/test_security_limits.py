"""docs/security.md names every limit, with its default; each is a setting, or has a reason why it is none."""

from __future__ import annotations

import inspect
import re
from dataclasses import Field, fields

from tests.docs.pages import DOCS, ROOT, TableRow, code, table_rows
from thermocline.broker.pops.pop_admission import ATTEMPT_CHARACTERS_MAX
from thermocline.broker.process.loop_turns import JOBS_MAX
from thermocline.broker.processors.hand_off import RECEIPT_CHARACTERS_MAX
from thermocline.broker.processors.topic import QUEUES_MAX
from thermocline.broker.pulls import WAITING_CHARACTERS_MAX
from thermocline.broker.pulls.cold_pull_limits import COLD_PULLS_CONNECTION_MAX, COLD_PULLS_MAX
from thermocline.broker.pulls.cold_read_quota import THRESHOLDS_MAX
from thermocline.broker.pulls.request_expressions import CHARS_KEPT_MAX, EXPRESSIONS_KEPT_MAX, TAGS_CHARS_MAX
from thermocline.broker.sends.acknowledgements import UNFLUSHED_BYTES_MAX
from thermocline.broker.settings import SETTINGS, BrokerConfig
from thermocline.broker.settings.limit_settings import LimitSettings
from thermocline.broker.tables.consumer_filter_table import DEAD_CHARS_MAX, DEAD_COUNT_MAX
from thermocline.broker.tables.message_filters import WAITING_MAX
from thermocline.broker.tier_process.tier_account import FORECASTS_WAITING_MAX
from thermocline.filters.compiled_filter_cache import CompiledFilterCache
from thermocline.namesrv.name_server_config import NameServerConfig
from thermocline.remoting.command import ODD_HEADER_BYTES_MAX
from thermocline.remoting.connections import ConnectionLimits
from thermocline.remoting.connections.server_limits import CONNECTIONS_MAX
from thermocline.remoting.settings import TlsConfig
from thermocline.remoting.settings.config_text import CHARACTERS_MAX
from thermocline.remoting.tls.tls_gate import TLS_HANDSHAKES_MAX
from thermocline.tiered.purge.purger import WAITING_MAX as PURGES_WAITING_MAX
from thermocline.tiered.sealing.seal_demands import WAITING_MAX as SEALS_WAITING_MAX


def _defaults(made: type, *names: str) -> tuple[int, ...]:
    parameters = inspect.signature(made).parameters
    return tuple(parameters[name].default for name in names)


PAGE = DOCS / "security.md"
OFFICIAL = {"popPollingSize", "maxPopPollingSize"}
"""Limits that Apache RocketMQ has."""
NOT_COUNTED = {"statsKeysMax", "quotas"}
"""The first refuses nothing, the second has a count of its own."""
COUNTED = re.compile(
    r'\.refused\(\s*"(\w+)"|_refuse\(\w+, "(\w+)"\)|_refused\("(\w+)"|_limit(?: =|=) "(\w+)"|^ +limit = "(\w+)"'
    r'|\("(\w+Max)", config\.|^[A-Z_]+ = "(server\w+|tls\w+Max)"|  (?:address|minute|total)_limit="(\w+)"'
    r'|[( ]limit="(\w+Max)"|^LIMIT = "(\w+Max)"',
    re.MULTILINE,
)

BOUNDS = {
    "bytes of a JSON header with members of other types than RocketMQ's": (ODD_HEADER_BYTES_MAX,),
    "characters of an expression of tags in a pull or POP": (TAGS_CHARS_MAX,),
    "expressions of tags that are kept": (EXPRESSIONS_KEPT_MAX, CHARS_KEPT_MAX),
    "pulls from the cold tier under way": (COLD_PULLS_MAX, COLD_PULLS_CONNECTION_MAX),
    "requests for a seal that wait, as while the bucket is away": (SEALS_WAITING_MAX,),
    "purges that wait for the one under way": (PURGES_WAITING_MAX,),
    "forecasts of costs that wait for the one under way": (FORECASTS_WAITING_MAX,),
    "searches by properties, and expressions, that wait for their turn": (JOBS_MAX,),
    "expressions that wait to be compiled": (WAITING_MAX,),
    "compiled expressions that are kept": _defaults(CompiledFilterCache, "count_max", "chars_max"),
    "expressions of groups that are offline": (DEAD_COUNT_MAX, DEAD_CHARS_MAX),
    "characters of the text of a change of settings": (CHARACTERS_MAX,),
    "groups that were given a threshold of cold reads": (THRESHOLDS_MAX,),
    "bytes that wait for the flush, with `SYNC_FLUSH`": (UNFLUSHED_BYTES_MAX,),
    "characters of the expression and other texts of a pull, POP or notification that waits": (WAITING_CHARACTERS_MAX,),
    "calls of the broker to one client without an answer": (ConnectionLimits().calls_pending_max,),
    "characters of the attempt id of a POP": (ATTEMPT_CHARACTERS_MAX,),
    "characters of the id of a receipt by which a group is handed over": (RECEIPT_CHARACTERS_MAX,),
    "queues of a topic": (QUEUES_MAX,),
}
"""Bounds without a setting."""


def named_fields(config: type) -> list[Field[object]]:
    """The settings of a class; what has settings of its own has no name."""
    return [item for item in fields(config) if "name" in item.metadata]


def limit_rows() -> dict[str, TableRow]:
    rows = [row for row in table_rows(PAGE) if "Limits" in row.headings and "limit" in row.cells]
    named = {code(row.cells["limit"]): row for row in rows}
    assert len(named) == len(rows), "a limit has two rows"
    return named


def counted_in_code() -> set[str]:
    """The names under which code counts refusals."""
    files = [
        path for top in ("auth", "broker", "namesrv", "remoting", "replication") for path in (ROOT / top).rglob("*.py")
    ]
    found = (match.groups() for path in files for match in COUNTED.finditer(path.read_text()))
    return {name for groups in found for name in groups if name}


def test_the_table_has_every_limit_and_no_other() -> None:
    broker = {item.metadata["name"] for item in fields(LimitSettings)}
    name_server = {
        item.metadata["name"]
        for item in named_fields(NameServerConfig)
        if item.metadata["name"].endswith("Max") or item.metadata["name"] == "serverFrameTimeoutMillis"
    }
    assert limit_rows().keys() == (broker - NOT_COUNTED) | name_server | OFFICIAL | {
        CONNECTIONS_MAX,
        TLS_HANDSHAKES_MAX,
    }


def test_every_limit_of_the_table_is_counted_by_its_name() -> None:
    assert counted_in_code() == limit_rows().keys() - {CONNECTIONS_MAX}


def test_defaults_are_those_of_the_code() -> None:
    ours = {item.metadata["name"]: getattr(NameServerConfig(), item.name) for item in named_fields(NameServerConfig)}
    ours |= {item.metadata["name"]: getattr(BrokerConfig(), item.name) for item in fields(BrokerConfig)}
    ours[TLS_HANDSHAKES_MAX] = TlsConfig().handshakes_max
    for name, row in limit_rows().items():
        if name != CONNECTIONS_MAX:
            assert code(row.cells["default"]) == str(ours[name]), name
            assert all(row.cells.values()), name


def test_limits_by_the_same_name_have_the_same_default_in_both_daemons() -> None:
    name_server = {
        item.metadata["name"]: getattr(NameServerConfig(), item.name) for item in named_fields(NameServerConfig)
    }
    for item in fields(LimitSettings):
        name = item.metadata["name"]
        if name in name_server:
            assert name_server[name] == getattr(BrokerConfig(), item.name)
        assert name in SETTINGS


def test_bounds_without_a_setting_are_those_of_the_code() -> None:
    rows = [row for row in table_rows(PAGE) if "bound" in row.cells]
    shown = {row.cells["bound"]: tuple(map(int, re.findall(r"`(\d+)`", row.cells["most"]))) for row in rows}
    assert shown == BOUNDS
