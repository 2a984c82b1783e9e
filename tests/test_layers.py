"""Layers: each folder imports only the folders that the tables allow; and the codec imports no socket.

The imports are read, never executed, wherever in a file they stand. The tables are the architecture: a new edge is
added here, in the open. They fail on a folder, module or edge that does not exist any more, so they cannot decay.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = "thermocline"
PRODUCT = (
    *("auth", "broker", "cli", "client", "controller", "filters", "localstack", "namesrv", "pop", "proxy"),
    *("remoting", "replication", "spark", "store", "tiered", "timers", "transactions", "src/pyspark_thermocline"),
)
"""Folders of the project that are installed."""

# Folders of `remoting/` with sockets and tasks in them; everything else there is codec: bytes in, values out.
REMOTING_SHELLS = ("remoting.connections", "remoting.tls", "remoting.clients", "remoting.health")
CODEC_FOLDERS = frozenset({"remoting", "remoting.records", "remoting.handles", "remoting.settings"})
# (`socket` itself is there for its address conversions.)
CODEC_MAY_NOT_IMPORT = frozenset({"asyncio", "selectors", "ssl", "threading", "logging", "uvloop"})

CODEC = "remoting codec"
"""In a table: CODEC_FOLDERS."""


def edges(*names: str) -> frozenset[str]:
    """Names of folders, each for the modules that are directly in it, and of single modules; several in one text."""
    return frozenset(name for text in names for name in ([text] if text == CODEC else text.split()))


SPARK_READS = "tiered.objects.errors tiered.objects.masked_urls tiered.segments.object_keys"
"""What every part of Spark needs of the cold tier."""

# Folder -> what its modules may import of other folders. Its own modules are always allowed, a subfolder's are not.
ALLOWED: dict[str, frozenset[str]] = {
    # -- the codec, then sockets, lower folders first
    "remoting": edges(),
    "remoting.records": edges("remoting"),
    "remoting.handles": edges("remoting remoting.records"),
    "remoting.bodies": edges("remoting remoting.records"),
    "remoting.headers": edges("remoting"),
    "remoting.settings": edges("remoting"),
    "remoting.connections": edges("remoting remoting.records"),
    "remoting.tls": edges("remoting remoting.settings remoting.connections"),
    "remoting.clients": edges("remoting remoting.connections remoting.tls"),
    "remoting.health": edges("remoting remoting.connections"),
    # -- layers that know no broker; of the local store, lower folders first
    "store.files": edges(CODEC),
    "store.state": edges(CODEC, "store.files"),
    "store.config": edges(CODEC),
    "store.log": edges(CODEC, "store.files"),
    "store.queues": edges(CODEC, "store.files store.log"),
    "store.index": edges(CODEC, "store.files store.state store.config store.log"),
    "store": edges(CODEC, "store.files store.state store.config store.log store.queues"),
    "store.sends": edges(CODEC, "remoting.headers store.queues store"),
    "filters": edges(CODEC),
    "timers": edges(CODEC, "remoting.bodies store.files store.log store.queues store"),
    "transactions": edges(CODEC, "store.log store.queues store"),
    "pop": edges(CODEC, "store.state store.log store.queues store"),
    # -- copies of the log on other brokers, then their sockets
    "replication": edges(CODEC, "store.files store.log store.queues store"),
    "replication.links": edges(CODEC, "remoting.connections store.config store.log store replication"),
    # -- users and what they may do: no I/O, no socket
    "auth": edges(CODEC, "remoting.bodies remoting.headers"),
    # -- the cold tier, lower folders first: no folder imports one below it here
    "tiered": edges(),
    "tiered.objects": edges(CODEC, "store.files"),
    "tiered.findings": edges(),
    "tiered.segments": edges(CODEC, "tiered.objects"),
    "tiered.wrappers": edges(CODEC, "store.files", "tiered.objects tiered.segments"),
    "tiered.cost": edges(CODEC, "tiered.segments tiered.wrappers"),
    "tiered.packs": edges(CODEC, "tiered.objects tiered.segments"),
    "tiered.index_format": edges(CODEC, "tiered.objects tiered.segments"),
    "tiered.catalog": edges(CODEC, "store.config", "tiered.index_format tiered.objects tiered.packs tiered.segments"),
    "tiered.ledger": edges(CODEC, "tiered.catalog tiered.index_format tiered.objects tiered.packs tiered.segments"),
    "tiered.s3": edges(CODEC, "tiered.objects tiered.segments tiered.wrappers"),
    "tiered.stores.file": edges(CODEC, "store.files", "tiered.objects"),
    "tiered.stores.memory": edges(CODEC, "tiered.objects"),
    "tiered.stores": edges(
        CODEC, "store.files", "tiered.objects tiered.s3 tiered.stores.file tiered.stores.memory tiered.wrappers"
    ),
    "tiered.budgets": edges(
        CODEC, "store.files", "tiered.cost tiered.ledger tiered.objects tiered.segments tiered.stores tiered.wrappers"
    ),
    "tiered.state": edges(CODEC, "tiered.catalog tiered.ledger tiered.objects tiered.packs tiered.segments"),
    "tiered.indexes": edges(
        CODEC,
        "tiered.catalog tiered.index_format tiered.ledger tiered.objects tiered.packs tiered.segments",
        "tiered.wrappers",
    ),
    "tiered.lookups": edges(
        CODEC, "tiered.catalog tiered.index_format tiered.indexes tiered.objects tiered.packs tiered.segments"
    ),
    "tiered.reading": edges(
        CODEC,
        "tiered.catalog tiered.index_format tiered.indexes tiered.lookups tiered.objects tiered.packs",
        "tiered.segments",
    ),
    "tiered.merging": edges(
        CODEC, "tiered.budgets tiered.catalog tiered.cost tiered.indexes tiered.ledger tiered.packs tiered.segments"
    ),
    "tiered.sealing": edges(
        CODEC,
        "store.files",
        "tiered.budgets tiered.catalog tiered.cost tiered.indexes tiered.ledger tiered.merging",
        "tiered.objects tiered.packs tiered.segments tiered.state",
    ),
    "tiered.garbage": edges(
        CODEC,
        "tiered.budgets tiered.catalog tiered.ledger tiered.objects tiered.sealing tiered.segments",
        "tiered.state",
    ),
    "tiered.service": edges(
        CODEC,
        "tiered.budgets tiered.catalog tiered.cost tiered.garbage tiered.indexes tiered.ledger tiered.merging",
        "tiered.sealing tiered.state",
    ),
    "tiered.bill": edges(
        CODEC,
        "tiered.budgets tiered.catalog tiered.cost tiered.garbage tiered.index_format tiered.indexes",
        "tiered.ledger tiered.merging tiered.packs tiered.sealing tiered.segments tiered.service",
        "tiered.stores tiered.wrappers",
    ),
    "tiered.doctor": edges(
        CODEC,
        "tiered.ledger tiered.objects tiered.s3 tiered.segments tiered.stores tiered.stores.file",
        "tiered.wrappers",
    ),
    "tiered.scrub": edges(
        CODEC,
        "tiered.catalog tiered.cost tiered.doctor tiered.findings tiered.index_format tiered.ledger",
        "tiered.objects tiered.packs tiered.segments tiered.state tiered.stores tiered.wrappers",
    ),
    "tiered.healing": edges(
        CODEC,
        "tiered.catalog tiered.findings tiered.indexes tiered.ledger tiered.objects tiered.packs tiered.scrub",
        "tiered.sealing tiered.segments tiered.service tiered.state tiered.wrappers",
    ),
    "tiered.purge": edges(
        CODEC,
        "tiered.budgets tiered.catalog tiered.indexes tiered.ledger tiered.merging tiered.objects",
        "tiered.packs tiered.sealing tiered.segments tiered.service",
    ),
    "tiered.bucket": edges(
        CODEC,
        "tiered.catalog tiered.findings tiered.index_format tiered.ledger tiered.objects tiered.packs",
        "tiered.reading tiered.scrub tiered.segments tiered.stores",
    ),
    # -- the broker, lower folders first: no folder imports one below it here (tests/test_folders.py)
    "broker.state_files": edges(CODEC, "remoting.bodies store.files store.log"),
    "broker.process": edges(CODEC, "store.files"),
    "broker.settings.official_settings": edges(CODEC, "auth"),
    "broker.settings": edges(
        CODEC,
        "auth remoting.bodies remoting.clients remoting.connections store.config",
        "broker.settings.official_settings broker.state_files",
        "tiered.budgets.tier_config tiered.objects.masked_urls",
    ),
    "broker.access": edges(CODEC, "auth remoting.connections store.sends"),
    "broker.cold": edges(CODEC, "store.queues", "tiered.catalog tiered.ledger tiered.segments"),
    "broker.metrics": edges("broker.cold", "remoting.health"),
    "broker.helpers": edges(
        CODEC,
        "remoting.connections remoting.clients store.files store.config store.index",
        "broker.cold broker.process",
        "tiered.budgets.tier_config tiered.findings.findings",
    ),
    "broker.tables": edges(
        CODEC,
        "remoting.bodies remoting.headers remoting.connections store.files store.state store.config store",
        "filters broker.process broker.settings",
        "broker.state_files",
        "tiered.budgets.tier_config",
    ),
    "broker.queues": edges(
        CODEC, "store.log store.queues store", "broker.cold broker.process broker.settings", "tiered.catalog.queue_gaps"
    ),
    "broker.state": edges(
        CODEC,
        "store.files store.config store.log",
        "pop broker.helpers broker.settings broker.state_files",
        "tiered.state.snapshot",
    ),
    "broker.cluster": edges(
        CODEC,
        "remoting.bodies remoting.headers remoting.connections remoting.clients",
        "broker.settings broker.tables",
        "remoting.tls",
    ),
    "broker.stats": edges(
        CODEC,
        "auth.quota_buckets",
        "remoting.bodies remoting.connections remoting.health store.queues store",
        "broker.cold broker.helpers broker.metrics broker.queues broker.settings broker.tables",
    ),
    "broker.tier_process": edges(
        CODEC,
        "remoting.connections store.files store.state store.config",
        "filters broker.cold broker.helpers broker.metrics broker.process broker.state",
        "tiered.bill tiered.budgets tiered.catalog tiered.cost tiered.doctor tiered.findings tiered.garbage",
        "tiered.healing tiered.indexes tiered.ledger tiered.merging tiered.objects tiered.packs tiered.purge",
        "tiered.reading tiered.scrub tiered.sealing tiered.segments tiered.service tiered.state tiered.stores",
        "tiered.wrappers",
    ),
    "broker.recovery": edges(
        CODEC,
        "remoting.bodies store.files store.state store.config store.log store.queues store.index store",
        "pop replication timers",
        "broker.settings broker.state broker.tables",
        "tiered.budgets tiered.catalog tiered.doctor tiered.ledger tiered.objects tiered.reading",
        "tiered.segments tiered.state tiered.stores",
    ),
    "broker.static_topics": edges(
        CODEC, "remoting.bodies remoting.headers store", "broker.cluster broker.cold broker.queues broker.tables"
    ),
    "broker.pulls": edges(
        CODEC,
        "remoting.bodies remoting.headers remoting.connections store.log store.queues store",
        "filters",
        "broker.cluster broker.cold broker.process broker.queues broker.settings broker.tables",
    ),
    "broker.pops": edges(
        CODEC,
        "remoting.bodies remoting.headers remoting.connections store.log store.queues store",
        "pop",
        "broker.process broker.pulls broker.queues broker.settings broker.stats broker.tables",
    ),
    "broker.sends": edges(
        CODEC,
        "remoting.bodies remoting.connections store.log store.queues store store.sends",
        "broker.pulls broker.stats broker.tables",
    ),
    "broker.due": edges(
        CODEC,
        "remoting.bodies remoting.headers store.files store.state store.log store.queues store",
        "timers transactions",
        "broker.sends broker.settings broker.state_files broker.stats broker.tables",
    ),
    "broker.replicas": edges(
        CODEC,
        "remoting.bodies remoting.headers remoting.clients store.files store.queues store.state timers",
        "auth broker.due broker.state_files broker.tables",
    ),
    "broker.controlled": edges(
        CODEC,
        "remoting.bodies remoting.headers remoting.connections remoting.clients store.files",
        "replication broker.settings",
        "remoting.tls",
    ),
    "broker.acting": edges(
        CODEC,
        "remoting.bodies remoting.headers remoting.connections remoting.clients store.files store.log store timers",
        "pop transactions broker.pops",
        "broker.cluster broker.due broker.replicas broker.settings broker.state_files broker.tables",
    ),
    "broker.tier": edges(
        CODEC,
        "remoting.bodies store.files store.state store.log store.queues store.index store",
        "pop timers transactions broker.cold broker.due broker.helpers broker.queues",
        "broker.state_files broker.tables",
        "tiered.budgets.tier_config tiered.catalog.queue_gaps",
    ),
    "broker.follower": edges(
        CODEC,
        "remoting.bodies remoting.connections store.files store.config store.queues store",
        "broker.helpers broker.pulls broker.settings broker.state_files broker.tables broker.tier",
        "broker.tier_process",
        "tiered.budgets tiered.catalog tiered.indexes tiered.ledger tiered.objects tiered.packs",
        "tiered.reading tiered.sealing tiered.segments tiered.state tiered.stores tiered.wrappers",
    ),
    "broker.proxy_process": edges(
        CODEC,
        "remoting.connections remoting.clients",
        "broker.helpers broker.settings proxy proxy.cluster proxy.settings",
    ),
    "broker.processors": edges(
        CODEC,
        "remoting.bodies remoting.headers remoting.connections store.files store.queues store",
        "pop timers",
        "broker.cluster broker.cold broker.due broker.queues broker.settings broker.state_files",
        "broker.static_topics broker.stats broker.tables",
    ),
    "broker.processors.messages": edges(
        CODEC,
        "auth.quota_buckets",
        "remoting.bodies remoting.headers remoting.connections store.log store.queues store store.sends",
        "timers transactions",
        "broker.cluster broker.cold broker.due broker.process broker.pulls broker.queues broker.sends",
        "broker.settings broker.static_topics broker.stats broker.tables",
    ),
    "broker.processors.pops": edges(
        CODEC,
        "auth.quota_buckets",
        "remoting.bodies remoting.headers remoting.connections store",
        "pop broker.pops broker.processors broker.pulls",
        "broker.queues broker.sends broker.settings broker.stats broker.tables",
    ),
    "broker.processors.tier": edges(
        CODEC,
        "remoting.bodies remoting.connections store.queues store",
        "broker.cold broker.helpers broker.queues broker.settings broker.stats",
        "broker.tables broker.tier",
        "tiered.objects.masked_urls",
    ),
    "broker.port": edges(
        CODEC,
        "remoting.connections",
        "broker.process broker.settings",
        "remoting.tls",
    ),
    "broker.assembly": edges(
        CODEC,
        "auth remoting.connections remoting.clients remoting.health store.files store.config store.log",
        "store.queues store pop timers transactions broker.access broker.acting",
        "broker.cluster broker.cold broker.due broker.follower broker.helpers broker.pops broker.process",
        "broker.processors broker.processors.messages broker.processors.pops broker.processors.tier",
        "replication replication.links remoting.bodies",
        "broker.proxy_process broker.pulls broker.queues broker.replicas broker.sends broker.settings broker.state",
        "broker.state_files",
        "broker.static_topics broker.stats broker.tables broker.tier broker.tier_process",
        "remoting.tls",
    ),
    "broker": edges(
        CODEC,
        "remoting.connections remoting.clients replication store.files store.config store.state store",
        "broker.assembly broker.controlled broker.due broker.follower broker.port broker.process broker.processors",
        "broker.proxy_process",
        "broker.pulls broker.recovery broker.settings broker.state_files",
        "tiered.objects.masked_urls tiered.stores.object_store_url",
        "remoting.tls",
    ),
    # -- the NameServer
    "namesrv": edges(
        CODEC, "auth remoting.bodies remoting.headers remoting.connections remoting.clients", "remoting.tls"
    ),
    # -- the controller: alone, or beside a NameServer, whose settings and access control it shares
    "controller.state": edges(CODEC, "remoting.bodies remoting.headers"),
    "controller.consensus": edges(CODEC, "remoting.clients remoting.tls store.files"),
    "controller": edges(
        CODEC,
        "namesrv remoting.bodies remoting.headers remoting.connections remoting.clients remoting.tls store.files",
        "remoting.health controller.consensus controller.state",
    ),
    # -- the SDK: `remoting` alone
    "client": edges(
        CODEC,
        "remoting.bodies remoting.headers remoting.connections remoting.clients",
        "client.admin client.consumer client.producer client.trace",
        "remoting.tls",
    ),
    "client.admin": edges(
        CODEC,
        "remoting.bodies remoting.headers remoting.connections remoting.clients",
        "client client.consumer client.trace",
    ),
    "client.consumer": edges(
        CODEC,
        "remoting.bodies remoting.headers remoting.connections",
        "client client.consumer.dispatch client.producer client.trace",
    ),
    "client.consumer.dispatch": edges(CODEC, "remoting.bodies", "client"),
    "client.producer": edges(
        CODEC,
        "remoting.bodies remoting.headers remoting.connections remoting.clients",
        "client client.consumer.dispatch client.trace",
    ),
    "client.testing": edges(CODEC, "remoting.bodies remoting.headers remoting.connections", "client"),
    "client.trace": edges(CODEC, "client client.producer"),
    # -- the proxy: protocols above, the seam (`proxy.messaging`) below them, what is behind it beside them
    "proxy.http2": edges(CODEC, "remoting.connections"),
    "proxy.settings": edges(CODEC, "auth remoting.connections", "proxy.http2"),
    "proxy.clients": edges(CODEC, "remoting.bodies"),
    "proxy.messaging": edges(CODEC, "remoting.bodies remoting.headers", "client client.consumer"),
    "proxy.routing": edges(CODEC, "remoting.clients remoting.tls", "proxy.messaging"),
    "proxy.cluster": edges(
        CODEC,
        "remoting.bodies remoting.headers remoting.connections remoting.clients remoting.tls",
        "client client.consumer client.producer",
        "proxy.clients proxy.messaging proxy.routing",
    ),
    "proxy.access": edges(CODEC, "auth remoting.bodies remoting.headers remoting.connections", "proxy.cluster"),
    "proxy.flow": edges(CODEC, "remoting.bodies", "client client.trace", "proxy.messaging"),
    "proxy.metrics": edges(CODEC, "remoting.health"),
    "proxy.grpc": edges(),
    "proxy.grpc.calls": edges(CODEC, "proxy.http2"),
    "proxy.grpc.messages": edges(CODEC),
    "proxy.grpc.service": edges(
        CODEC,
        "auth remoting.bodies remoting.headers remoting.connections",
        "client client.trace",
        "proxy.access proxy.clients proxy.flow proxy.grpc.calls proxy.grpc.messages proxy.messaging proxy.metrics",
        "proxy.settings",
    ),
    "proxy.remoting": edges(
        CODEC,
        "remoting.bodies remoting.headers remoting.connections remoting.clients remoting.tls",
        "client proxy.flow proxy.messaging proxy.metrics proxy.routing",
    ),
    "proxy": edges(
        CODEC,
        "auth remoting.bodies remoting.connections remoting.clients remoting.health remoting.tls",
        "client client.producer client.trace",
        "proxy.access proxy.clients proxy.cluster proxy.flow proxy.grpc.calls proxy.grpc.messages proxy.grpc.service",
        "proxy.http2 proxy.messaging proxy.metrics proxy.remoting proxy.routing proxy.settings",
    ),
    # -- commands: what asks a broker goes through the SDK. The rest is named: the daemons' entry points with their log
    #    format, Spark's jobs, and what asks no broker: the store doctor, what looks at a bucket, the price table
    "cli.common": edges(
        CODEC, "broker.process client client.admin client.producer remoting.clients.name_server_source", "remoting.tls"
    ),
    "cli.access": edges("cli.common"),
    "cli.spark": edges(
        "cli.common spark.handoff.hand_off spark.jobs.compare spark.jobs.counts spark.jobs.key_history",
        "spark.jobs.lag spark.jobs.replay spark.jobs.republish spark.session",
    ),
    "cli.tier": edges(
        "cli.common client.admin remoting.offsets tiered.bucket.bucket_contents tiered.bucket.bucket_messages",
        "tiered.bucket.bucket_verify tiered.cost.price_table tiered.cost.request_kind",
        "tiered.doctor.examination tiered.scrub.bucket_scrub",
    ),
    "cli.groups": edges(CODEC, "remoting.bodies", "cli.common client client.admin"),
    "cli.messages": edges(CODEC, "cli.common client client.admin client.producer client.trace"),
    "cli.topics": edges("cli.common client.admin"),
    "cli.brokers": edges(
        CODEC,
        "broker.main broker.process cli.common controller.in_name_server controller.main namesrv.main proxy.main",
        "remoting.bodies remoting.tls",
    ),
    "cli": edges(CODEC, "cli.access cli.brokers cli.common cli.groups cli.messages cli.spark cli.tier cli.topics"),
    # -- Spark reads the cold tier and writes nothing to it but pins and receipts: module by module
    "spark": edges(
        CODEC,
        "spark.access spark.bodies spark.connector spark.decoding spark.handoff spark.jobs spark.metrics",
        "spark.reading",
        "tiered.objects.masked_urls",
    ),
    "spark.access": edges(
        CODEC,
        SPARK_READS,
        "spark.connector spark.metrics",
        "tiered.ledger.ledger_reader tiered.objects.object_store tiered.objects.segment_offset",
        "tiered.s3.s3_object_store tiered.s3.s3_options tiered.stores.object_store_url tiered.wrappers.metering",
        "tiered.wrappers.retrying tiered.wrappers.wrapping",
    ),
    "spark.bodies": edges(CODEC, "spark.decoding spark.missing_extra"),
    "spark.connector": edges(CODEC, "spark.missing_extra"),
    "spark.decoding": edges(CODEC),
    "spark.handoff": edges(
        CODEC,
        "remoting.bodies",
        SPARK_READS,
        "client client.admin spark spark.access spark.reading",
        "tiered.ledger.pins tiered.objects.checked_json",
        "remoting.tls",
        "client",
    ),
    "spark.jobs": edges(
        CODEC,
        SPARK_READS,
        "client client.admin client.consumer client.producer spark spark.access spark.connector",
        "spark.decoding spark.handoff spark.reading",
        "tiered.catalog.queue_gaps tiered.state.newest_state tiered.state.snapshot",
    ),
    "spark.metrics": edges(),
    "spark.reading": edges(
        CODEC,
        SPARK_READS,
        "spark spark.access spark.decoding spark.metrics",
        "tiered.catalog.catalog tiered.catalog.ledger_entry tiered.catalog.pack_pieces",
        "tiered.catalog.queue_gaps tiered.catalog.ttl tiered.ledger.ledger_reader tiered.ledger.pins",
        "tiered.objects.object_store tiered.objects.parallel tiered.objects.segment_offset tiered.segments.key_index",
        "tiered.segments.queue_columns tiered.segments.segment_entry tiered.segments.segment_format",
        "tiered.segments.segment_reader tiered.state.newest_state tiered.state.snapshot",
    ),
    "spark.streaming": edges(
        CODEC,
        "remoting.headers",
        SPARK_READS,
        "client client.admin spark spark.access spark.bodies spark.decoding",
        "spark.reading",
        "tiered.catalog.catalog tiered.catalog.pack_pieces tiered.catalog.queue_gaps tiered.catalog.ttl",
        "tiered.ledger.ledger_reader tiered.segments.segment_entry tiered.segments.segment_format",
    ),
    "spark.writing": edges(CODEC, "client client.admin client.consumer client.producer spark.option_names"),
    "pyspark_thermocline": edges("spark spark.streaming spark.writing"),
    # -- servers for tests and the demo
    "localstack": edges(),
}

# What one module may import beyond its folder: the NameServer, which the broker's own entry point can run beside it
# (`thermocline dev`); message filters, which the fake broker for users' tests evaluates as a broker does.
ALLOWED_MODULES: dict[str, frozenset[str]] = {
    "broker.main": edges("namesrv.name_server_config namesrv.server"),
    "client.testing.fake_filters": edges("filters"),
}


@cache
def modules() -> dict[str, Path]:
    """Each module of the project, `folder.name`, with its file; a folder's `__init__.py` by the folder's name."""
    found: dict[str, Path] = {}
    for folder in PRODUCT:
        top = ROOT / folder
        for path in sorted(top.rglob("*.py")):
            parts = path.relative_to(top.parent).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


@cache
def folders() -> frozenset[str]:
    """Every folder of the project with modules in it."""
    return frozenset(
        module if path.name == "__init__.py" else module.rpartition(".")[0] for module, path in modules().items()
    )


def folder_of(module: str) -> str:
    """The folder that a module is in; a folder's own name stands for its `__init__.py`."""
    return module if module in folders() else module.rpartition(".")[0]


def imports_of(path: Path, module: str) -> Iterator[tuple[int, str]]:
    """Every imported name as (line, dotted module); names of this project lose the `thermocline.` before them.

    A public name of a folder counts as imported from the module that defines it.
    """
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
                dotted = f"{base}.{alias.name}".removeprefix(f"{PACKAGE}.")
                folder = base.removeprefix(f"{PACKAGE}.")
                yield node.lineno, dotted if dotted in modules() else public_names(folder).get(alias.name, folder)


@cache
def public_names(folder: str) -> dict[str, str]:
    """Where each public name of a folder is defined: name -> module."""
    path = modules().get(folder)
    if path is None or path.name != "__init__.py":
        return {}
    return {
        alias.asname or alias.name: node.module.removeprefix(f"{PACKAGE}.")
        for node in ast.walk(ast.parse(path.read_text(), filename=str(path)))
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith(f"{PACKAGE}.{folder}.")
        for alias in node.names
    }


@cache
def imports() -> tuple[tuple[str, int, str], ...]:
    """(importing module, line, imported module or foreign name), of the whole project."""
    return tuple((module, line, name) for module, path in modules().items() for line, name in imports_of(path, module))


def rules_for(importer: str, imported: str) -> frozenset[str]:
    """The entries of the tables that allow a module of one folder to import a module of another; none: it may not."""
    folder = folder_of(imported)
    fitting = {imported, folder}
    if folder in CODEC_FOLDERS:
        fitting.add(CODEC)
    allowed = ALLOWED[folder_of(importer)] | ALLOWED_MODULES.get(importer, frozenset())
    return frozenset(fitting & allowed)


def may_import(importer: str, imported: str) -> bool:
    """Whether a module may name another, or a foreign name."""
    if imported not in modules():
        return imported.split(".")[0] not in folders()
    return folder_of(importer) == folder_of(imported) or bool(rules_for(importer, imported))


def test_each_folder_imports_only_what_it_may() -> None:
    wrong = [
        f"{modules()[module].relative_to(ROOT)}:{line} imports {imported}"
        for module, line, imported in imports()
        if not may_import(module, imported)
    ]
    assert not wrong, "\n".join(wrong)


def test_the_codec_imports_no_socket_task_or_logger() -> None:
    wrong = [
        f"{modules()[module].relative_to(ROOT)}:{line} imports {imported}"
        for module, line, imported in imports()
        if module.split(".")[0] == "remoting" and not module.startswith(REMOTING_SHELLS)
        if imported.split(".")[0] in CODEC_MAY_NOT_IMPORT or imported.startswith(REMOTING_SHELLS)
    ]
    assert not wrong, "\n".join(wrong)


def test_every_folder_is_in_the_table() -> None:
    assert set(ALLOWED) == folders()


def test_every_name_in_the_tables_exists() -> None:
    names = {name for table in (ALLOWED, ALLOWED_MODULES) for allowed in table.values() for name in allowed}
    names |= ALLOWED_MODULES.keys() | CODEC_FOLDERS | set(REMOTING_SHELLS)
    assert sorted(names - {CODEC} - folders() - modules().keys()) == []


def test_every_edge_in_the_tables_is_used() -> None:
    """An edge that no import needs any more is taken out, so that it does not come back unnoticed."""
    used: set[tuple[str, str]] = set()
    for importer, _, imported in imports():
        if imported in modules():
            for rule in rules_for(importer, imported):
                used |= {(folder_of(importer), rule), (importer, rule)}
    tables = [(name, rule) for table in (ALLOWED, ALLOWED_MODULES) for name, rules in table.items() for rule in rules]
    assert [f"{name} no longer imports {rule}" for name, rule in sorted(tables) if (name, rule) not in used] == []


@pytest.mark.parametrize(
    ("importer", "imported", "expected"),
    [
        ("store.log.commit_log", "remoting.records.message_record", True),
        ("store.log.commit_log", "remoting.connections.server", False),
        ("store.log.commit_log", "broker.main", False),
        ("store.log.commit_log", "os.path", True),
        ("filters.compiled_filter", "remoting.records.properties", True),
        ("filters.compiled_filter", "store.log.commit_log", False),
        ("broker.processors.messages.pull", "broker.pulls", True),
        ("broker.processors.messages.pull", "broker.metrics.families", False),
        ("broker.pulls.pull_finder", "broker.processors.messages.pull", False),
        ("broker.stats.metrics_page", "broker.processors.messages.pull", False),
        ("tiered.sealing.sealer", "store.files.disk", True),
        ("tiered.sealing.sealer", "broker.hot_process", False),
        ("tiered.sealing.sealer", "tiered.scrub.scrubber", False),
        ("tiered.scrub.scrubber", "tiered.catalog.catalog", True),
        ("timers.timer_log", "store.files.disk", True),
        ("timers.timer_log", "broker.hot_process", False),
        ("broker.assembly.due", "timers.timer_message_store", True),
        ("transactions.check_round", "store.message_store", True),
        ("transactions.check_round", "broker.hot_process", False),
        ("store.message_store", "transactions.settlement", False),
        ("broker.assembly.local_store", "transactions.settlement", True),
        ("pop.pop_store", "store.message_store", True),
        ("pop.pop_store", "broker.hot_process", False),
        ("broker.assembly.pops", "pop.pop_store", True),
        ("broker.port.listener", "remoting.connections.server", True),
        ("broker.hot_process", "namesrv.server", False),
        ("broker.main", "namesrv.server", True),
        ("client.producer.producer", "remoting.clients.client", True),
        ("client.producer.producer", "store.log.commit_log", False),
        ("client.producer.producer", "filters", False),
        ("client.testing.fake_filters", "filters", True),
        ("client.testing.fake_filters", "filters.compiled_filter", True),
        ("client.testing.fake_node", "filters", False),
        ("cli.brokers.dev", "broker.main", True),
        ("cli.tier.store", "tiered.doctor.examination", True),
        ("cli.tier.store", "tiered.ledger.ledger_writer", False),
        ("cli.brokers.dev", "broker.hot_process", False),
        ("cli.brokers.proxy", "proxy.main", True),
        ("cli.brokers.proxy", "proxy.proxy_server", False),
        ("proxy.cluster.cluster_messaging", "remoting.clients.client", True),
        ("proxy.grpc.service.sending", "proxy.messaging.messaging", True),
        ("proxy.grpc.service.sending", "proxy.cluster.cluster_messaging", False),
        ("proxy.grpc.service.sending", "remoting.clients.client", False),
        ("proxy.messaging.messaging", "proxy.cluster.cluster_messaging", False),
        ("proxy.proxy_server", "broker.main", False),
        ("proxy.access.access_check", "auth.authorization", True),
        ("proxy.access.access_check", "proxy.grpc.messages", False),
        ("spark.reading.cold_plan", "tiered.catalog.catalog", True),
        ("spark.reading.cold_plan", "tiered.segments.segment_writer", False),
        ("spark.reading.cold_plan", "tiered.service.tier_service", False),
        ("spark.data_source", "tiered.catalog.catalog", False),
        ("spark.data_source", "store.log.commit_log", False),
        ("localstack.minio", "tiered.s3", False),
    ],
)
def test_the_tables_allow_and_forbid_imports(importer: str, imported: str, expected: bool) -> None:
    assert {importer, imported} - modules().keys() <= {"os.path"}
    assert may_import(importer, imported) is expected
