"""What is kept of a dialogue between a gRPC client and a proxy, and how two answers are compared.

An exchange is one RPC: {"rpc", "client": number of the client in the dialogue, "metadata", "request": JSON with
placeholders, "answers": [form, ...]}. What a proxy sends by itself on a Telemetry stream is an exchange without a
request.

    {{handle ID}}, {{transaction ID}}   from the newest answer that had one for the message with this id
    {{in MS}}                           a time so many ms after now
    {{host}}, {{port}}                  of the proxy

The form of an answer is its JSON in which each value that differs from run to run is "*". A list is a set of forms.
"""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from google.protobuf import json_format

from thermocline.proxy.grpc.messages import messages

__all__ = [
    "PLACEHOLDER",
    "RECORDED",
    "answer_class",
    "fill_placeholders",
    "form_of",
    "json_of",
    "note_values",
    "request_class",
]

RECORDED = Path(__file__).resolve().parent / "recorded"
ANY = "*"
VOLATILE = frozenset(
    {
        "TRANSACTION_CHECK_TIMES",
        "__transactionId__",
        "body",
        "bornHost",
        "bornTimestamp",
        "checksum",
        "clientId",
        "deliveryTimestamp",
        "host",
        "hostname",
        "message",
        "messageId",
        "nonce",
        "orphanedTransactionRecoveryDuration",
        "platform",
        "port",
        "recallHandle",
        "receiptHandle",
        "storeHost",
        "storeTimestamp",
        "transactionId",
    }
)
"""Fields whose value is another one in each run; `message` is the text of a status, or a message, which has a form."""
LEFT_OUT = frozenset({"id", "offset", "queueId", "queueOffset"})
"""Numbers that are another one in each run, and not there when they are 0."""
PLACEHOLDER = re.compile(r"\{\{(\w+) ?(\S*)\}\}")


def request_class(rpc: str) -> Any:
    """The class of an RPC's request."""
    return messages.TelemetryCommand if rpc == "Telemetry" else getattr(messages, f"{rpc}Request")


def answer_class(rpc: str) -> Any:
    """The class of an RPC's answer."""
    return messages.TelemetryCommand if rpc == "Telemetry" else getattr(messages, f"{rpc}Response")


def json_of(message: Any) -> dict[str, Any]:
    """A message as JSON."""
    fields: dict[str, Any] = json_format.MessageToDict(message)
    return fields


def form_of(value: Any, name: str = "") -> Any:
    """The form of a part of an answer."""
    if isinstance(value, dict):
        return {key: form_of(item, key) for key, item in sorted(value.items()) if key not in LEFT_OUT}
    if isinstance(value, list):
        forms = {json.dumps(form_of(item, name), sort_keys=True) for item in value}
        return [json.loads(form) for form in sorted(forms)]
    return ANY if name in VOLATILE else value


def note_values(answer: Any, values: dict[str, str], request: Mapping[str, Any] | None = None) -> None:
    """Note the handles and transaction ids of an answer in `values`, by placeholder."""
    fields = json_of(answer)
    for entry in fields.get("entries", []):
        if "transactionId" in entry:
            values[f"transaction {entry['messageId']}"] = entry["transactionId"]
    if "receiptHandle" in fields and request is not None:  # of a changed invisible time
        values[f"handle {request['messageId']}"] = fields["receiptHandle"]
    command = fields.get("recoverOrphanedTransactionCommand")
    if command is not None:
        values[f"transaction {command['message']['systemProperties']['messageId']}"] = command["transactionId"]
    system = fields.get("message", {})
    if isinstance(system, dict) and "receiptHandle" in system.get("systemProperties", {}):
        system = system["systemProperties"]
        values[f"handle {system['messageId']}"] = system["receiptHandle"]


def fill_placeholders(value: Any, values: Mapping[str, str]) -> Any:
    """A part of a request with its placeholders replaced; KeyError if an answer is missing."""
    if isinstance(value, dict):
        return {key: fill_placeholders(item, values) for key, item in value.items()}
    if isinstance(value, list):
        return [fill_placeholders(item, values) for item in value]
    match = PLACEHOLDER.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        return value
    kind, argument = match.groups()
    if kind == "in":
        due = datetime.datetime.now(datetime.UTC) + datetime.timedelta(milliseconds=int(argument))
        return due.isoformat().replace("+00:00", "Z")
    found = values[f"{kind} {argument}".rstrip()]
    return int(found) if kind == "port" else found
