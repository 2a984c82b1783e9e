"""Prints the messages and enums of the official client's generated classes as JSON; run by test_classes.py."""

from __future__ import annotations

import json
from importlib import import_module
from typing import Any

files: list[Any] = [
    import_module(f"rocketmq.grpc_protocol.{name}_pb2").DESCRIPTOR for name in ("definition", "service")
]
described: dict[str, Any] = {"messages": {}, "enums": {}}
for file in files:
    for message in file.message_types_by_name.values():
        described["messages"][message.name] = [
            [each.number, each.name, each.type, each.is_repeated, each.has_presence] for each in message.fields
        ]
    for enum in file.enum_types_by_name.values():
        described["enums"][enum.name] = {value.name: value.number for value in enum.values}
print(json.dumps(described))  # noqa: T201  # its output is for the test
