"""Our reading of JSON bodies and headers beside RocketMQ's own, on bodies as clients in any language might write them.

What release 5.5.0 takes is taken, with the same value; what it refuses is refused, unless the releases before it take
it and give the value that we give. The exceptions are those that `json_conversion.py` names.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import inspect

from tests.interop.json_mutations import Author, Key, ObjectNode, Raw, Written, is_null
from tests.interop.official_decoder import OfficialDecoder, Verdict, official_decoder
from thermocline.remoting import bodies, headers
from thermocline.remoting.bit_set import decode_bit_set
from thermocline.remoting.bodies import Body
from thermocline.remoting.bodies.client import LanguageName
from thermocline.remoting.command import RemotingCommand, decode_command
from thermocline.remoting.errors import HeaderDecodeError, InvalidRequestError
from thermocline.remoting.frames import HEADER_WORD
from thermocline.remoting.header_codec import Header, Int, decode_header
from thermocline.remoting.language_code import LANGUAGE_BY_NAME, LANGUAGE_BY_NUMBER, LanguageCode
from thermocline.remoting.request_code import RequestCode
from tooling.official_rocketmq import OfficialSoftware

pytestmark = pytest.mark.xdist_group("official-decoder")

SEED = 17

REQUEST_BODIES: dict[tuple[RequestCode, ...], tuple[type[Body], str]] = {
    (RequestCode.HEART_BEAT,): (bodies.HeartbeatData, "HeartbeatData"),
    (RequestCode.CHECK_CLIENT_CONFIG,): (bodies.CheckClientRequestBody, "CheckClientRequestBody"),
    (RequestCode.LOCK_BATCH_MQ,): (bodies.LockBatchRequestBody, "LockBatchRequestBody"),
    (RequestCode.UNLOCK_BATCH_MQ,): (bodies.UnlockBatchRequestBody, "UnlockBatchRequestBody"),
    (RequestCode.QUERY_ASSIGNMENT,): (bodies.QueryAssignmentRequestBody, "QueryAssignmentRequestBody"),
    (RequestCode.SET_MESSAGE_REQUEST_MODE,): (
        bodies.SetMessageRequestModeRequestBody,
        "SetMessageRequestModeRequestBody",
    ),
    (RequestCode.BATCH_ACK_MESSAGE,): (bodies.BatchAckMessageRequestBody, "BatchAckMessageRequestBody"),
    (RequestCode.UPDATE_AND_CREATE_TOPIC_LIST,): (bodies.TopicConfigListBody, "CreateTopicListRequestBody"),
    (RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC,): (bodies.TopicQueueMappingDetail, "TopicQueueMappingDetail"),
    (RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,): (bodies.SubscriptionGroupConfig, "SubscriptionGroupConfig"),
    (RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,): (
        bodies.SubscriptionGroupListBody,
        "SubscriptionGroupList",
    ),
    (RequestCode.RESET_CONSUMER_CLIENT_OFFSET,): (bodies.ResetOffsetBody, "ResetOffsetBody"),
    (RequestCode.REGISTER_BROKER,): (bodies.RegisterBrokerBody, "RegisterBrokerBody"),
    (RequestCode.QUERY_DATA_VERSION,): (bodies.DataVersion, "DataVersion"),
    (RequestCode.REGISTER_TOPIC_IN_NAMESRV,): (bodies.TopicRouteData, "TopicRouteData"),
}
"""Every request whose body is JSON, with its class in RocketMQ."""

ANSWER_BODIES: tuple[tuple[type[Body], str], ...] = (
    (bodies.TopicConfigSerializeWrapper, "TopicConfigAndMappingSerializeWrapper"),  # old brokers' registration too
    (bodies.BrokerStatsData, "BrokerStatsData"),
    (bodies.ClusterInfo, "ClusterInfo"),
    (bodies.ConsumeMessageDirectlyResult, "ConsumeMessageDirectlyResult"),
    (bodies.ConsumerConnection, "ConsumerConnection"),
    (bodies.ConsumerRunningInfo, "ConsumerRunningInfo"),
    (bodies.ConsumeStats, "ConsumeStats"),
    (bodies.GetConsumerListByGroupResponseBody, "GetConsumerListByGroupResponseBody"),
    (bodies.GetConsumerStatusBody, "GetConsumerStatusBody"),
    (bodies.GroupList, "GroupList"),
    (bodies.KVTable, "KVTable"),
    (bodies.LockBatchResponseBody, "LockBatchResponseBody"),
    (bodies.ProducerConnection, "ProducerConnection"),
    (bodies.ProducerTableInfo, "ProducerTableInfo"),
    (bodies.QueryAssignmentResponseBody, "QueryAssignmentResponseBody"),
    (bodies.TopicConfigAndMapping, "TopicConfigAndQueueMapping"),
    (bodies.TopicList, "TopicList"),
    (bodies.TopicStatsTable, "TopicStatsTable"),
)
"""What brokers and clients answer, and the SDK or a broker reads."""

ALL_BODIES = (*REQUEST_BODIES.values(), *ANSWER_BODIES)


@pytest.fixture(scope="module")
def decoder(official_software: OfficialSoftware, new_module_folder: Callable[[str], Path]) -> Iterator[OfficialDecoder]:
    with official_decoder(official_software, new_module_folder("official-decoder")) as running:
        yield running


# -- bodies ------------------------------------------------------------------------------------------------------------


def test_bodies_are_read_alike(decoder: OfficialDecoder, case_count: Callable[..., int]) -> None:
    wrong: list[str] = []
    count = case_count(quick=40, soak=3_000)
    for body_type, name in ALL_BODIES:
        author = Author(SEED)
        described = inspect.type_info(body_type)
        cases = [author.written(described) for _ in range(count)]
        for written, (now, before) in zip(cases, decoder.bodies([(name, each.text) for each in cases]), strict=True):
            complaint = disagreement(body_type, written, now, before)
            if complaint is not None:
                wrong.append(f"{name}: {complaint}\n    {written.text.decode()!r}")
    assert wrong == [], f"{len(wrong)} of {count * len(ALL_BODIES)}, such as\n" + "\n".join(wrong[:20])


def test_ordinals_as_texts(decoder: OfficialDecoder) -> None:
    """RocketMQ takes an ordinal as text, except after a number as text in an uncommon form, such as "1,000": fastjson 2
    keeps that text, and `JSONReader.getString` returns it again for the ordinal. We take the ordinal in both places."""
    plain, after_number = (
        b'{"connectionSet":[{%s"language":"8"}]}' % member for member in (b"", b'"version":"1,000",')
    )
    verdicts = decoder.bodies([("ProducerConnection", text) for text in (plain, after_number)])
    languages = [now.value["connectionSet"]["@set"][0]["language"] for now, _before in verdicts]
    assert languages == ["HTTP", None]
    for text in (plain, after_number):
        assert [each.language for each in bodies.ProducerConnection.decode(text).connection_set] == ["HTTP"]


def disagreement(body_type: type[Body], written: Written, now: Verdict, before: Verdict) -> str | None:
    """Why our reading is not RocketMQ's, or None."""
    try:
        ours = body_type.decode(written.text)
    except InvalidRequestError as error:
        return None if now.value is None else f"refused ({error}), but the official decoder takes it"
    by_now = f"refused: {now.refused}" if now.value is None else difference(ours, now.value, written.node, "")
    if by_now is None or (now.refused or "").startswith("java.lang.NullPointerException"):
        return None  # that is null where its Java map takes none, not a refusal
    if now.value is None and before.refused is None:
        if before.value is None or body_type is bodies.BatchAckMessageRequestBody:
            return None  # the old decoder does not know the short names that the new one has from its own annotations
        by_before = difference(ours, before.value, written.node, "")
        return by_before and f"taken, but not as before 5.5.0: {by_before}"
    return by_now


def difference(ours: Any, official: Any, node: Any, path: str) -> str | None:
    """Where two readings of `node` part, or None."""
    if isinstance(ours, msgspec.Struct):
        return structure_difference(ours, official, node, path)
    if isinstance(official, dict) and "@set" in official:
        return set_difference(ours, official["@set"], node, path)
    if official == [] and ours == ["null"] and node == "null":
        return None  # 5.5.0 reads this text as no item of a List, but as one of a Set; releases before as one of a List
    if isinstance(official, list) and isinstance(ours, list):
        if isinstance(node, list) and len(node) == len(official):
            sent = zip(official, node, strict=True)
            rows = [(item, each) for item, each in sent if item is not None and not is_null_item(each, item)]
        else:
            kept = [item for item in official if item is not None]
            rows = [(item, None if isinstance(node, list) or len(kept) != 1 else node) for item in kept]
        if len(rows) != len(ours):
            return f"{path}: {len(ours)} items, official {official}"
        found = (
            difference(mine, *row, f"{path}[{index}]") for index, (mine, row) in enumerate(zip(ours, rows, strict=True))
        )
        return next(filter(None, found), None)
    if isinstance(official, dict) and "@bits" in official and isinstance(ours, str):
        return None if decode_bit_set(ours) == official["@bits"] else f"{path}: {ours}, official {official}"
    if isinstance(official, dict) and "@map" in official and isinstance(ours, dict):
        return map_difference(ours, official["@map"], node, path)
    if isinstance(ours, float) and isinstance(official, int | float):
        return None if ours == official else f"{path}: {ours}, official {official}"
    if type(ours) is type(official) and ours == official:
        return None
    return f"{path}: {ours!r}, official {official!r}"


def structure_difference(ours: msgspec.Struct, official: Any, node: Any, path: str) -> str | None:
    if not isinstance(official, dict):
        return f"{path}: an object, official {official!r}"
    if isinstance(node, list) and len(node) == 1:
        node = node[0]
    for field in msgspec.structs.fields(type(ours)):
        mine = getattr(ours, field.name)
        where = f"{path}.{field.encode_name}"
        java_name = JAVA_NAMES.get(type(ours), {}).get(field.encode_name, field.encode_name)
        if java_name not in official:
            if field.encode_name in OUR_MEMBERS.get(type(ours), ()):
                continue
            return f"{where}: RocketMQ has no such member"
        theirs = official[java_name]
        member = node.last(field.encode_name) if isinstance(node, ObjectNode) else None
        default = field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()
        if theirs is None and (type(ours), field.name) in UNKNOWN_NAMES_KEPT:
            continue
        is_not_sent = theirs is None or (is_null(member) and not isinstance(theirs, str | list | dict))
        if is_not_sent and mine in (default, None):
            continue  # null, and a number or flag that is not sent: our default, where 5.5.0 may have 0 or false
        if theirs is None and is_ordinal_as_text(member, mine, field):
            continue  # the constant of that ordinal, which 5.5.0 gives mostly: see test_ordinals_as_texts
        complaint = difference(mine, theirs, member, where)
        if complaint is not None:
            return complaint
    return None


def is_ordinal_as_text(member: Any, constant: Any, field: msgspec.structs.FieldInfo) -> bool:
    """Whether a member of an enum is a text with the ordinal of that constant."""
    described = inspect.type_info(field.type)
    names = (described.extra or {}).get("names", ()) if isinstance(described, inspect.Metadata) else ()
    return isinstance(member, str) and constant in names and member == str(names.index(constant))


OUR_MEMBERS: dict[type, tuple[str, ...]] = {
    bodies.OffsetWrapper: ("endOffset",),
    bodies.TopicOffset: ("messageCount",),
}
"""Members of ours, which RocketMQ's decoder passes over."""

UNKNOWN_NAMES_KEPT = {(bodies.SetMessageRequestModeRequestBody, "mode")}
"""Names of constants that do not exist are kept, so that the processor refuses them; RocketMQ has null there."""

JAVA_NAMES: dict[type, dict[str, str]] = {
    bodies.HeartbeatData: {"withoutSub": "isWithoutSub"},
    bodies.BatchAck: {
        "c": "consumerGroup",
        "t": "topic",
        "r": "retry",
        "so": "startOffset",
        "q": "queueId",
        "rq": "reviveQueueId",
        "pt": "popTime",
        "it": "invisibleTime",
        "b": "bitSet",
    },
}
"""Fields of Java classes that have other names than on the wire."""


def set_difference(ours: Any, official: list[Any], node: Any, path: str) -> str | None:
    if not isinstance(ours, list | set):
        return f"{path}: {ours!r}, official a set"
    expected = [item for item in official if item is not None]
    if isinstance(ours, set):
        return None if set(map(str, expected)) == set(map(str, ours)) else f"{path}: {ours}, official {official}"
    items = node if isinstance(node, list) else [node]
    for index, item in enumerate(ours):
        match = next((each for each in expected for part in items if difference(item, each, part, "") is None), None)
        if match is None and is_same_for_java(item, ours[:index]):
            continue  # the earlier one, which stands in the official set, has been compared
        if match is None and not path.startswith(".subscriptionSet"):  # a TreeSet, which takes several for one
            return f"{path}[{index}]: {item!r} is not in the official {official}"
    return None if len(ours) >= len(expected) else f"{path}: the official decoder has more: {official}"


def is_same_for_java(item: Any, earlier: list[Any]) -> bool:
    """Whether RocketMQ's set drops an item because it equals an earlier one; we keep both, and only answer them.

    Source: SimpleSubscriptionData.equals, which does not look at the version.
    """
    if not isinstance(item, bodies.SimpleSubscriptionData):
        return False
    return any(msgspec.structs.replace(each, version=item.version) == item for each in earlier)


def map_difference(ours: dict[Any, Any], official: list[list[Any]], node: Any, path: str) -> str | None:
    if path == ".properties":
        return None  # a java.util.Properties, which holds anything
    if isinstance(node, list) and len(node) == 1:
        node = node[0]
    expected = [(key, value) for key, value in official if value is not None]
    if len(expected) != len(ours):
        return f"{path}: {len(ours)} members, official {official}"
    for key, value in expected:
        mine = next((each for each in ours if is_same_key(each, key)), None)
        if mine is None:
            return f"{path}: no member {key!r}"
        members = node.members if isinstance(node, ObjectNode) else []
        sent = [member for name, member in members if is_key(name, mine)]
        complaint = difference(ours[mine], value, sent[-1] if sent else None, f"{path}.{key}")
        if complaint is not None:
            return complaint
    return None


def is_same_key(ours: Any, official: Any) -> bool:
    if isinstance(ours, msgspec.Struct):
        return bool(msgspec.to_builtins(ours) == official)
    return type(ours) is type(official) and bool(ours == official)


def is_key(name: Any, key: Any) -> bool:
    if isinstance(name, Key):
        return isinstance(key, msgspec.Struct) and msgspec.to_builtins(key) == dict(name.members)
    return (name.text if isinstance(name, Raw) else name) == str(key)


def is_null_item(item: Any, official: Any) -> bool:
    """Whether an item of a list counts as none: an empty text does where a number belongs."""
    return bool(item == NULL) or (isinstance(official, int) and is_null(item))


NULL = Raw("null")


# -- headers -----------------------------------------------------------------------------------------------------------

HEADER_TYPES = [
    value
    for name in headers.__all__
    if isinstance(value := getattr(headers, name), type) and issubclass(value, Header) and "Header" in name
]
SPECIAL_TEXTS = {"commitOrRollback": "8", "boundaryType": "UPPER", "topicFilterType": "MULTI_TAG"}
ODD_HEADER_TEXTS = (
    "",
    "7",
    "-7",
    "+7",
    "007",
    "x",
    "7.9",
    " 7",
    str(2**31),
    str(2**63),
    "true",
    "TRUE",
    "false",
    "nil",
)


def test_headers_are_read_alike(decoder: OfficialDecoder, case_count: Callable[..., int]) -> None:
    """Where RocketMQ reads a number that none is as if it were not there, and needs it, we refuse the request."""
    chooser = random.Random(SEED)
    types = [header_type for header_type in HEADER_TYPES if decoder.has_class(header_type.__name__)]
    assert len(types) > 60
    cases = [
        (header_type, ext_fields(header_type, chooser))
        for header_type in types
        for _ in range(case_count(quick=12, soak=1_000))
    ]
    verdicts = decoder.headers([(header_type.__name__, fields) for header_type, fields in cases])
    wrong = []
    for (header_type, fields), verdict in zip(cases, verdicts, strict=True):
        complaint = header_disagreement(header_type, fields, verdict)
        if complaint is not None:
            wrong.append(f"{header_type.__name__}: {complaint}\n    {fields}")
    assert wrong == [], f"{len(wrong)} of {len(cases)}, such as\n" + "\n".join(wrong[:20])


def test_headers_that_decode_themselves(decoder: OfficialDecoder) -> None:
    types = [header_type for header_type in HEADER_TYPES if decoder.has_class(header_type.__name__)]
    expected = decoder.decode_themselves([header_type.__name__ for header_type in types])
    names = {each.__name__ for each, is_fast in zip(types, expected, strict=True) if is_fast}
    assert {each.__name__ for each in types if each.decodes_itself} == names


def ext_fields(header_type: type[Header], chooser: random.Random) -> dict[str, str]:
    """Fields as clients send them, about one in ten with an odd text, one in twenty not there."""
    fields: dict[str, str] = {"notAField": "7"}
    for field in msgspec.structs.fields(header_type):
        described = inspect.type_info(field.type)
        names = str(described)
        text = chooser.choice(("0", "5", "17")) if "IntType" in names else "orders"
        text = chooser.choice(("true", "false")) if "BoolType" in names else text
        text = SPECIAL_TEXTS.get(field.encode_name, text)
        if chooser.random() < 0.1:
            text = chooser.choice(ODD_HEADER_TEXTS)
        if chooser.random() > 0.05:
            fields[field.encode_name] = text
    return fields


def header_disagreement(header_type: type[Header], fields: dict[str, str], verdict: Verdict) -> str | None:
    try:
        ours = decode_header(header_type, fields)
    except InvalidRequestError as error:
        if verdict.refused is not None:
            return None
        missing = [
            field.encode_name
            for field in msgspec.structs.fields(header_type)
            if field.required and verdict.value.get(field.encode_name) in (None, 0)
        ]
        return None if missing else f"refused ({error}), but the official decoder takes it"
    if verdict.refused is not None:
        # Our processors check the first two; what is null where RocketMQ needs it has its default.
        is_checked_later = any(
            name in verdict.refused for name in ("commitOrRollback", "TopicFilterType", "NullPointerException")
        )
        return None if is_checked_later else f"taken, official {verdict.refused}"
    for field in msgspec.structs.fields(header_type):
        mine, theirs = getattr(ours, field.name), verdict.value.get(field.encode_name)
        text = fields.get(field.encode_name)
        if field.encode_name not in verdict.value or mine == theirs or (mine is True and text == "1"):
            continue
        if field.name in ("commit_or_rollback", "boundary_type"):
            continue  # our processors look at them
        if mine in (field.default, None) and (theirs is None or text is None or theirs in (0, False)):
            continue  # not there, or as good as: our default
        return f"{field.encode_name}: {mine!r}, official {theirs!r}"
    return None


@pytest.mark.parametrize("seed", range(3))
def test_command_headers_are_read_alike(decoder: OfficialDecoder, seed: int, case_count: Callable[..., int]) -> None:
    """The JSON header of a command: `RemotingCommand` itself."""
    author = Author(seed)
    described = inspect.type_info(CommandHeader)
    written = [author.written(described) for _ in range(case_count(quick=100, soak=5_000))]
    judged = [without_odd_language(each) for each in written]
    verdicts = decoder.bodies([("RemotingCommand", each.text) for each in judged])
    wrong = []
    for each, official, (now, before) in zip(written, judged, verdicts, strict=True):
        complaint = command_disagreement(each, official, now, before)
        if complaint is not None:
            wrong.append(f"{complaint}\n    {each.text.decode()!r}")
    assert wrong == [], f"{len(wrong)} of {len(written)}, such as\n" + "\n".join(wrong[:20])


class CommandHeader(msgspec.Struct, kw_only=True, rename="camel"):
    """The members that travel."""

    code: Int = 0
    ext_fields: dict[str, str] = {}
    flag: Int = 0
    language: LanguageName = "JAVA"
    opaque: Int = 0
    remark: str | None = None
    version: Int = 0


def without_odd_language(written: Written) -> Written:
    """The header without a language that does not exist, as RocketMQ's decoder accepts it.

    We read such a header, as of OTHER; RocketMQ refuses it or has null, whatever else is in it.
    """
    language = written.node.last("language")
    if language is None or language == NULL or is_language(language):
        return written
    return Written.of(ObjectNode([each for each in written.node.members if each[0] != "language"]), written.form)


def is_language(node: Any) -> bool:
    """Whether RocketMQ has a language of that name or number."""
    if isinstance(node, str):
        return node.translate(SEPARATORS).upper() in LANGUAGE_NAMES or node in map(str, LANGUAGE_BY_NUMBER)
    if isinstance(node, Raw):
        return node.text in {f"{number}.0" for number in LANGUAGE_BY_NUMBER}
    return type(node) is int and node in LANGUAGE_BY_NUMBER


SEPARATORS = str.maketrans("", "", "_- ")
LANGUAGE_NAMES = {name.translate(SEPARATORS) for name in LANGUAGE_BY_NAME}


def command_disagreement(written: Written, judged: Written, now: Verdict, before: Verdict) -> str | None:
    """Why our reading of `written` is not RocketMQ's of `judged`, or None."""
    try:
        command = decode_command(HEADER_WORD.pack(len(written.text)) + written.text)
    except HeaderDecodeError as error:
        return None if now.value is None else f"refused ({error}), but the official decoder takes it"
    if judged is not written:
        if command.language is not LanguageCode.OTHER:
            return f"no language, but taken as {command.language.name}"
        command.language = LanguageCode.JAVA  # the default, as in `judged`
    by_now = now.refused or difference(as_header(command), now.value, judged.node, "")
    if now.refused is None or by_now is None:
        return by_now
    if before.value is not None:
        return difference(as_header(command), before.value, judged.node, "")
    return f"taken, official {now.refused}"


def as_header(command: RemotingCommand) -> CommandHeader:
    return CommandHeader(
        code=command.code,
        ext_fields=command.ext_fields or {},
        flag=command.flag,
        language=command.language.name,
        opaque=command.opaque,
        remark=command.remark,
        version=command.version,
    )
