"""The one-way street: each layer imports only what it may, and the codec knows no socket.

The imports are read, never executed, wherever in a file they stand. The table is the architecture: whoever needs a new
edge changes it here, in the open.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = "thermocline"

# Modules of `remoting/` with sockets and tasks in them; everything else there is codec: bytes in, values out.
REMOTING_SHELLS = frozenset(
    {
        "remoting.server",
        "remoting.client",
        "remoting.connection",
        "remoting.descriptor_limit",
        "remoting.listener",
        "remoting.name_server_source",
        "remoting.outbox",
        "remoting.pending_calls",
        "remoting.request_handler",
    }
)
# (`socket` itself is there for its address conversions.)
CODEC_MAY_NOT_IMPORT = frozenset({"asyncio", "selectors", "ssl", "threading", "logging", "uvloop"})

CODEC = "remoting codec"
REMOTING = "remoting"

# What each folder may import of the others. Its own modules are always allowed.
ALLOWED: dict[str, frozenset[str]] = {
    "remoting": frozenset(),
    "store": frozenset({CODEC}),
    "filters": frozenset({CODEC}),
    "tiered": frozenset({CODEC, "store"}),
    "timers": frozenset({CODEC, "store"}),
    "transactions": frozenset({CODEC, "store"}),
    "pop": frozenset({CODEC, "store"}),
    "broker": frozenset({REMOTING, "store", "tiered", "timers", "filters", "transactions", "pop"}),
    "namesrv": frozenset({REMOTING}),
    "client": frozenset({REMOTING}),
    "cli": frozenset({REMOTING, "client"}),
    "spark": frozenset({CODEC, "client", "tiered"}),
    "localstack": frozenset(),
}

# Single modules that a layer, or one module of it, may name beyond that: the daemons' entry points with their settings
# and log format, which commands start; the NameServer, which the broker's own entry point can run beside it
# (`thermocline dev`); the store doctor and what looks at a bucket, which ask no broker; the price table; the disk seam,
# with which a reader opens a cold tier that lies in a directory; message filters, which the fake broker for users'
# tests evaluates as a broker does.
SINGLE_MODULES: dict[str, frozenset[str]] = {
    "cli": frozenset(
        {
            "broker.main",
            "broker.process",
            "namesrv.main",
            "namesrv.name_server_config",
            "spark.handoff.hand_off",
            "spark.jobs.compare",
            "spark.jobs.counts",
            "spark.jobs.file_output",
            "spark.jobs.key_history",
            "spark.jobs.lag",
            "spark.jobs.replay",
            "spark.jobs.republish",
            "spark.session",
            "tiered.bucket",
            "tiered.bucket.bucket_contents",
            "tiered.bucket.bucket_messages",
            "tiered.bucket.bucket_verify",
            "tiered.cost.price_table",
            "tiered.cost.request_kind",
            "tiered.doctor.examination",
            "tiered.scrub.bucket_scrub",
        }
    ),
    "broker.main": frozenset({"namesrv.name_server_config", "namesrv.server"}),
    "spark": frozenset({"store.disk"}),
    "client.testing.fake_filters": frozenset({"filters"}),
}

# Spark reads the cold tier and writes nothing to it but pins and receipts.
TIERED_WRITERS = frozenset(
    {
        "tiered.segment_writer",
        "tiered.sealer",
        "tiered.uploader",
        "tiered.garbage",
        "tiered.fencing",
        "tiered.ledger_writer",
        "tiered.packs.merging",
        "tiered.packs.pack_merger",
        "tiered.packs.pack_sealer",
        "tiered.packs.pack_writer",
        "tiered.purge.purger",
        "tiered.purge.segment_rewriter",
        "tiered.state.state_log",
    }
)


def modules() -> Iterator[tuple[str, Path]]:
    """Each module of the project as `folder.name` with its file."""
    for folder in ALLOWED:
        for path in sorted((ROOT / folder).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), path


def imports_of(path: Path, module: str) -> Iterator[tuple[int, str]]:
    """Every imported name as (line, dotted module); names of this project lose the `thermocline.` before them."""
    is_package = path.name == "__init__.py"
    for node in ast.walk(ast.parse(path.read_text(), filename=str(path))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name.removeprefix(f"{PACKAGE}.")
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                anchor = module.split(".")
                anchor = anchor[: len(anchor) - node.level + (1 if is_package else 0)]
                base = ".".join([PACKAGE, *anchor, *([base] if base else [])])
            for alias in node.names:
                dotted = f"{base}.{alias.name}"
                yield node.lineno, (dotted if _is_module(dotted) else base).removeprefix(f"{PACKAGE}.")


def _is_module(dotted: str) -> bool:
    if not dotted.startswith(f"{PACKAGE}."):
        return False
    path = ROOT.joinpath(*dotted.split(".")[1:])
    return path.with_suffix(".py").is_file() or (path / "__init__.py").is_file()


def may_import(importer: str, imported: str) -> bool:
    """Whether a module of one folder may name a module of another."""
    folder, other = importer.split(".")[0], imported.split(".")[0]
    if other not in ALLOWED or other == folder:
        return True
    if folder == "spark" and imported in TIERED_WRITERS:
        return False
    if other in ALLOWED[folder] or any(imported in SINGLE_MODULES.get(name, ()) for name in (folder, importer)):
        return True
    return other == REMOTING and CODEC in ALLOWED[folder] and imported not in REMOTING_SHELLS


def test_each_layer_imports_only_what_it_may() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{line} imports {imported}"
        for module, path in modules()
        for line, imported in imports_of(path, module)
        if not may_import(module, imported)
    ]
    assert not wrong, "\n".join(wrong)


def test_the_codec_knows_no_socket_task_or_logger() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{line} imports {imported}"
        for module, path in modules()
        if module.split(".")[0] == "remoting" and module not in REMOTING_SHELLS
        for line, imported in imports_of(path, module)
        if imported.split(".")[0] in CODEC_MAY_NOT_IMPORT or imported in REMOTING_SHELLS
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("importer", "imported", "expected"),
    [
        ("store.commit_log", "remoting.message_record", True),
        ("store.commit_log", "remoting.server", False),
        ("store.commit_log", "broker.main", False),
        ("store.commit_log", "os.path", True),
        ("filters.compiled_filter", "remoting.properties", True),
        ("filters.compiled_filter", "store.commit_log", False),
        ("broker.processors.messages.pull", "filters.compiled_filter", True),
        ("tiered.sealer", "store.commit_log", True),
        ("tiered.sealer", "broker.hot_process", False),
        ("timers.timer_log", "store.disk", True),
        ("timers.timer_log", "broker.hot_process", False),
        ("broker.assembly.due", "timers.timer_message_store", True),
        ("transactions.check_round", "store.message_store", True),
        ("transactions.check_round", "broker.hot_process", False),
        ("store.message_store", "transactions.settlement", False),
        ("broker.assembly.local_store", "transactions.settlement", True),
        ("pop.pop_store", "store.message_store", True),
        ("pop.pop_store", "broker.hot_process", False),
        ("broker.assembly.pops", "pop.pop_store", True),
        ("broker.hot_process", "remoting.server", True),
        ("broker.hot_process", "namesrv.server", False),
        ("broker.main", "namesrv.server", True),
        ("client.producer.producer", "remoting.client", True),
        ("client.producer.producer", "store.commit_log", False),
        ("client.producer.producer", "filters", False),
        ("client.testing.fake_filters", "filters", True),
        ("cli.dev", "broker.main", True),
        ("cli.store", "tiered.doctor.examination", True),
        ("cli.store", "tiered.ledger_writer", False),
        ("cli.dev", "broker.hot_process", False),
        ("spark.data_source", "tiered.catalog", True),
        ("spark.data_source", "tiered.segment_writer", False),
        ("spark.data_source", "store.commit_log", False),
        ("localstack.minio", "tiered.s3", False),
    ],
)
def test_the_table_means_what_it_says(importer: str, imported: str, expected: bool) -> None:
    assert may_import(importer, imported) is expected
