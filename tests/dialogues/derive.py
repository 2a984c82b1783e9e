"""`python -m tests.dialogues.derive TRACES`: write `recorded/` anew from recorded frames.

TRACES is a folder of recordings of the official clients and tools, one JSON object a frame (its README tells its form).
What is kept are the facts that a replay needs, see script.py: no bodies of answers, no times, no addresses.
"""

from __future__ import annotations

import base64
import json
import re
import sys
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.dialogues.script import RECORDED, Step, records_of, shape_of_body, write_script
from thermocline.remoting.records.message_id import decode_message_id

BROKERS_OWN_CONNECTION = 1
REGISTER_BROKER, SEND, SEND_BATCH, SEND_BACK, QUERY_MESSAGE, POP = 103, 310, 320, 36, 12, 200050
CONSUME_DIRECTLY = 309
END_TRANSACTION = 37
SYSTEM_BUSY = 2
LONG_MAX = 2**63 - 1
PULLS = (11, 361)
TIMED_PROPERTY = re.compile("(TIMER_DELIVER_MS\x01)(\\d+)")


def derive(path: Path, *, of_broker: bool = False) -> list[Step]:
    """The steps of one recording; of the broker's own dialogue with its NameServer when it is about that."""
    return list(_Derivation(path, of_broker=of_broker).steps())


class _Derivation:
    def __init__(self, path: Path, *, of_broker: bool) -> None:
        self._frames = [json.loads(line) for line in path.read_text().splitlines()]
        self._of_broker = of_broker
        # By connection and opaque: the number of a request under way.
        self._numbers: dict[tuple[int, int], int] = {}
        self._asked: dict[tuple[int, int], int] = {}
        # Recorded values that are different on each run.
        self._placeholders: dict[str, str] = {}
        self._checked: Counter[str] = Counter()
        # Start of the recording, computed from the birth times of messages in it.
        births = (
            int(frame["extFields"]["g"]) - int(frame["t_ms"])
            for frame in self._frames
            if frame["kind"] == "request" and "g" in (frame.get("extFields") or {})
        )
        self._started_ms = next(births, None)
        self._answers = {
            (frame["conn"], frame["opaque"]): frame
            for frame in self._frames
            if frame["kind"] == "response" and frame["dir"] == "<"
        }

    def steps(self) -> Iterator[Step]:
        opened: set[int] = set()
        for frame in self._frames:
            conn, kind = frame["conn"], frame["kind"]
            if not self._of_broker and conn == BROKERS_OWN_CONNECTION:
                continue
            if conn not in opened and (kind == "connected" or self._of_broker):
                opened.add(conn)
                yield ["open", conn, frame["link"]]
            if kind == "end of stream" and conn in opened:
                opened.discard(conn)
                yield ["close", conn]
            elif kind in ("request", "oneway"):
                yield from self._request(frame)
            elif kind == "response":
                yield from self._response(frame)

    def _request(self, frame: dict[str, Any]) -> Iterator[Step]:
        conn, code, is_oneway = frame["conn"], frame["code"], frame["kind"] == "oneway"
        place = (conn, frame["opaque"])
        if frame["dir"] == "<":
            names = _names(frame)
            if is_oneway:
                yield ["notice", conn, code, names]
            else:
                number = self._asked[place] = len(self._asked)
                yield ["asked", conn, number, code, names]
            return
        if not is_oneway and (place not in self._answers or self._was_too_busy(code, place)):
            return
        number = self._numbers[place] = len(self._numbers)
        options: dict[str, Any] = {}
        if frame.get("serializer") == "ROCKETMQ":
            options["binary"] = True
        if is_oneway:
            options["oneway"] = True
        fields = frame.get("extFields")
        if fields is not None:
            fields = self._fields(frame, fields)
        yield ["ask", conn, number, code, fields, self._body(frame), options]

    def _response(self, frame: dict[str, Any]) -> Iterator[Step]:
        place = (frame["conn"], frame["opaque"])
        if frame["dir"] == ">":
            if place in self._asked:
                body = self._body(frame)
                yield ["reply", self._asked[place], frame["code"], frame.get("extFields"), body]
            return
        if place not in self._numbers:
            return
        number = self._numbers[place]
        fields = frame.get("extFields") or {}
        if fields.get("msgId"):
            first = fields["msgId"].split(",")[0]
            self._placeholders[f"msgId={first}"] = f"{{{{id {number}}}}}"
            offset = decode_message_id(first).physical_offset
            self._placeholders[f"place={offset}"] = f"{{{{place {number}}}}}"
            if "queueOffset" in fields:
                self._placeholders[f"half={offset}"] = f"{{{{field {number} queueOffset}}}}"
        if "recallHandle" in fields:
            self._placeholders[f"recallHandle={fields['recallHandle']}"] = f"{{{{field {number} recallHandle}}}}"
        options: dict[str, Any] = {}
        if "nextBeginOffset" in fields and frame["code"] == 0:
            options["next"] = int(fields["nextBeginOffset"])
        yield ["answer", number, frame["code"], _names(frame), _answer_shape(frame), options]

    def _was_too_busy(self, code: int, place: tuple[int, int]) -> bool:
        """Whether the recording machine was: the client sent the same again."""
        return code == SEND and self._answers[place]["code"] == SYSTEM_BUSY

    # -- values --------------------------------------------------------------------------------------------------------

    def _fields(self, frame: dict[str, Any], fields: Mapping[str, str]) -> dict[str, str]:
        code = frame["code"]
        values = dict(fields)
        for name in ("msgId", "recallHandle"):
            if name in values:
                values[name] = self._placeholders.get(f"{name}={values[name]}", values[name])
        if code == END_TRANSACTION:
            offset, transaction_id = values["commitLogOffset"], values["transactionId"]
            if values["fromTransactionCheck"] == "true":
                times = self._checked[transaction_id]
                self._checked[transaction_id] += 1
                for name in ("commitLogOffset", "tranStateTableOffset"):
                    values[name] = f"{{{{check {transaction_id} {times} {name}}}}}"
            else:
                values["commitLogOffset"] = self._placeholders[f"place={offset}"]
                values["tranStateTableOffset"] = self._placeholders[f"half={offset}"]
        elif code == 33:
            values["offset"] = self._placeholders.get(f"place={values['offset']}", "{{live place}}")
        elif code == CONSUME_DIRECTLY:
            values["msgId"] = "{{live id}}"
        elif code == SEND_BACK:
            values["offset"] = f"{{{{place of {values['originMsgId']}}}}}"
        elif code in PULLS:
            if self._answers[(frame["conn"], frame["opaque"])]["code"] != 0 and "suspendTimeoutMillis" in values:
                values["suspendTimeoutMillis"] = "200"
        elif code == POP:
            values["bornTime"] = "{{now}}"
            if self._answers[(frame["conn"], frame["opaque"])]["code"] != 0:
                values["pollTime"] = "1000"
        elif code == QUERY_MESSAGE:
            for name, unknown in (("beginTimestamp", 0), ("endTimestamp", LONG_MAX)):
                values[name] = self._relative_time(frame, values[name], unknown=unknown)
        if "extraInfo" in values:
            place = f"{values['topic']} {values['consumerGroup']} {values['queueId']} {values['offset']}"
            values["extraInfo"] = f"{{{{receipt {place}}}}}"
        if "g" in values:
            born_ms = int(values["g"])
            values["g"] = "{{now}}"
            values["i"] = TIMED_PROPERTY.sub(
                lambda match: f"{match[1]}{{{{now+{int(match[2]) - born_ms}}}}}", values.get("i", "")
            )
        return values

    def _relative_time(self, frame: dict[str, Any], time_ms: str, *, unknown: int) -> str:
        """A time relative to the request; `unknown` when no relation to the request's time is recorded."""
        if int(time_ms) == LONG_MAX:
            return time_ms
        if self._started_ms is None:
            return str(unknown)
        return f"{{{{now{int(time_ms) - self._started_ms - int(frame['t_ms']):+d}}}}}"

    def _body(self, frame: dict[str, Any]) -> Any:
        if not frame.get("body_len"):
            return None
        if frame.get("code") == SEND_BATCH:
            return {"batch": self._batch_size(frame)}
        if "body_text" in frame:
            text: str = frame["body_text"]
            return text
        if "body_b64" in frame:
            data = base64.b64decode(frame["body_b64"])
            if data[:1] == b"\x78" and frame.get("code") == REGISTER_BROKER:
                return {"compressed": zlib.decompress(data).decode("latin-1")}
            try:
                return data.decode()
            except UnicodeDecodeError:
                return {"size": len(data)}
        return {"size": frame["body_len"]}

    def _batch_size(self, frame: dict[str, Any]) -> int:
        """As many messages as the answer has ids."""
        answer = self._answers[(frame["conn"], frame["opaque"])]
        return len(answer["extFields"]["msgId"].split(","))


def _names(frame: dict[str, Any]) -> list[str] | None:
    fields = frame.get("extFields")
    return None if fields is None else sorted(fields)


def _answer_shape(frame: dict[str, Any]) -> Any:
    if not frame.get("body_len"):
        return None
    if "body_text" in frame:
        return shape_of_body(frame["body_text"].encode())
    if "body_b64" in frame:
        body = base64.b64decode(frame["body_b64"])
        return shape_of_body(body) if records_of(body) is not None else "words"
    return "unrecorded"


def main(traces: Path) -> None:
    """Derive every recording."""
    (RECORDED / "mqadmin").mkdir(parents=True, exist_ok=True)
    for path in sorted(traces.glob("*.jsonl")):
        write_script(RECORDED / path.name, derive(path, of_broker=path.name.startswith("broker_")))
    for path in sorted((traces / "mqadmin").glob("*.jsonl")):
        write_script(RECORDED / "mqadmin" / path.name, derive(path))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
