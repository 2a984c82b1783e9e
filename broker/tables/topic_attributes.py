"""Topic attributes: their keys and values, how a change is written, and the time to live that they set.

A change is text such as `+reserve.time=24,-message.type`: `+key=value` sets a value, `-key` removes it. A change that
creates a topic may only set values. A topic stores its keys without the sign.

    key                      values                                                default               changeable
    queue.type               SimpleCQ, BatchCQ (not built: refused)                SimpleCQ              no
    cleanup.policy           DELETE, COMPACTION (not built: refused)               DELETE                no
    message.type             NORMAL, FIFO, DELAY, TRANSACTION, MIXED, UNSPECIFIED  NORMAL                yes
    reserve.time             whole hours, or a duration such as 90s or 1d12h;      -1                    yes
                             -1 or 0 = the broker's default
    thermocline.ttl.ms       milliseconds; 0 = for ever, -1 = the broker's default -1                    yes
    thermocline.full.policy  refuse, drop-oldest (broker/tier/drop_oldest.py)      the broker's policy   yes

A change is refused as a whole if a key is unknown or named twice, a value is invalid, or the topic exists and the key
is not changeable.

`reserve.time` and `thermocline.ttl.ms` state the same time to live. A change of one of them rewrites both ("-": the key
is not stored):

    time to live           reserve.time                    thermocline.ttl.ms
    whole hours            the hours                       -
    other durations        the hours, rounded up           milliseconds
    for ever               -                               0
    the broker's default   -, or the -1 or 0 of the change -

Apache RocketMQ reads `reserve.time` alone. The hours are rounded up so that it does not delete a message too soon.
Removing either key makes the topic follow the broker's default again. If a file holds both keys,
`thermocline.ttl.ms` counts unless it is -1 or invalid.
Source: common/TopicAttributes.java, common/attribute/*.java, Apache RocketMQ 5.3.
"""

from collections.abc import Callable, Mapping

import msgspec

from thermocline.remoting.duration import parse_duration_ms
from thermocline.remoting.errors import CorruptDataError, InvalidRequestError
from thermocline.remoting.java_long import LONG_MAX
from thermocline.tiered.budgets import FullPolicy

RESERVE_TIME = "reserve.time"
TTL_MS = "thermocline.ttl.ms"
TTL_KEYS = frozenset((RESERVE_TIME, TTL_MS))
FULL_POLICY = "thermocline.full.policy"
MESSAGE_TYPE = "message.type"
MESSAGE_TYPE_MIXED = "MIXED"

TTL_DEFAULT_FILE_NAME = "ttlDefault"

HOUR_MS = 3_600_000
NUMBER_DIGITS_MAX = 19
DURATION_TEXT_MAX = 64


class Attribute(msgspec.Struct, frozen=True, kw_only=True):
    """One known attribute: whether an existing topic may change it, and which values it accepts."""

    is_changeable: bool
    accepts: Callable[[str], bool]


def _one_of(*values: str) -> Callable[[str], bool]:
    return frozenset(values).__contains__


def _is_number_from_minus_one(text: str) -> bool:
    digits = text[1:] if text.startswith("-") else text
    if not digits.isascii() or not digits.isdecimal() or len(digits) > NUMBER_DIGITS_MAX:
        return False
    return -1 <= int(text) <= LONG_MAX


def _is_hours_or_duration(text: str) -> bool:
    if _is_number_from_minus_one(text):
        return True
    duration_ms = parse_duration_ms(text) if len(text) <= DURATION_TEXT_MAX else None
    return duration_ms is not None and 0 < duration_ms <= LONG_MAX


ATTRIBUTES: Mapping[str, Attribute] = {
    "queue.type": Attribute(is_changeable=False, accepts=_one_of("SimpleCQ", "BatchCQ")),
    "cleanup.policy": Attribute(is_changeable=False, accepts=_one_of("DELETE", "COMPACTION")),
    MESSAGE_TYPE: Attribute(
        is_changeable=True,
        accepts=_one_of("UNSPECIFIED", "NORMAL", "FIFO", "DELAY", "TRANSACTION", MESSAGE_TYPE_MIXED),
    ),
    RESERVE_TIME: Attribute(is_changeable=True, accepts=_is_hours_or_duration),
    TTL_MS: Attribute(is_changeable=True, accepts=_is_number_from_minus_one),
    FULL_POLICY: Attribute(is_changeable=True, accepts=_one_of(*FullPolicy)),
}

# RocketMQ's values that are not built here. Refused: otherwise a topic would say one thing and its messages be stored
# in another way.
UNSUPPORTED_VALUES: Mapping[str, str] = {"queue.type": "BatchCQ", "cleanup.policy": "COMPACTION"}


def parse_change(text: str | None) -> dict[str, str]:
    """Read `+key=value,-key` into {"+key": "value", "-key": ""}.

    Raises:
        InvalidRequestError: The text has another form, or names a key twice.
    """
    change: dict[str, str] = {}
    for part in (text or "").split(","):
        if not part:
            continue
        key, separator, value = part.partition("=")
        key, value = key.strip(), value.strip()
        if separator and not key.startswith("+"):
            raise InvalidRequestError(f"add/alter attribute format is wrong: {key}")
        if not separator and not key.startswith("-"):
            raise InvalidRequestError(f"delete attribute format is wrong: {key}")
        if key in change:
            raise InvalidRequestError(f"key duplication: {key}")
        change[key] = value
    return change


def apply_change(
    current: Mapping[str, str],
    change: Mapping[str, str],
    *,
    is_new: bool,
    allowed: Mapping[str, Attribute] = ATTRIBUTES,
) -> dict[str, str]:
    """Return the attributes of a topic or group after a change. Rules and most error texts are AttributeUtil.java's.

    `change` has the form that `parse_change` returns. `is_new`: the topic or group is being created. `allowed`: the
    attributes that exist (for groups: none).

    Raises:
        InvalidRequestError: The change breaks a rule; no part of it is applied.
    """
    result = dict(current)
    seen_keys: set[str] = set()
    signed_keys = [(signed_key[:1], signed_key[1:]) for signed_key in change]
    for (sign, key), value in zip(signed_keys, change.values(), strict=True):
        if not key or "+" in key or "-" in key:
            raise InvalidRequestError("kv string format wrong.")
        if key in seen_keys:
            raise InvalidRequestError(f"alter duplication key. key: {key}")
        seen_keys.add(key)
        if is_new and sign != "+":
            raise InvalidRequestError(f"only add attribute is supported while creating topic. key: {key}")
        # Either key of the time to live removes it, even if only the other key is stored.
        equal_keys = TTL_KEYS if key in TTL_KEYS else {key}
        if sign == "-" and current.keys().isdisjoint(equal_keys):
            raise InvalidRequestError(f"attempt to delete a nonexistent key: {key}")
        if sign not in ("+", "-"):
            raise InvalidRequestError(f"wrong format key: {key}")
        attribute = allowed.get(key)
        if attribute is None:
            raise InvalidRequestError(f"unsupported key: {key}")
        if not is_new and not attribute.is_changeable:
            raise InvalidRequestError(f"attempt to update an unchangeable attribute. key: {key}")
        if sign == "-":
            result.pop(key, None)
            continue
        if not attribute.accepts(value):
            raise InvalidRequestError(f"value is not in range. key: {key}, value: {value}")
        if UNSUPPORTED_VALUES.get(key) == value:
            raise InvalidRequestError(f"not supported yet. key: {key}, value: {value}")
        result[key] = value
    set_keys = {key for sign, key in signed_keys if sign == "+"}
    return _with_equal_ttl_keys(result, set_keys=set_keys, changed_keys=seen_keys)


def check_supported(attributes: Mapping[str, str]) -> None:
    """Check the attributes of a topic that another broker created.

    Raises:
        InvalidRequestError: An attribute has a value that is not built here.
    """
    for key, value in UNSUPPORTED_VALUES.items():
        if attributes.get(key) == value:
            raise InvalidRequestError(f"not supported yet. key: {key}, value: {value}")


def ttl_ms(attributes: Mapping[str, str], *, default_ms: int | None) -> int | None:
    """Return the time to live in ms that the attributes set, else `default_ms`; None keeps messages for ever."""
    exact_ms = _number(attributes.get(TTL_MS))
    if exact_ms is not None and exact_ms >= 0:
        return exact_ms or None
    hours = _number(attributes.get(RESERVE_TIME))
    if hours is not None and hours > 0:
        return min(hours * HOUR_MS, LONG_MAX)
    return default_ms


def ttl_attributes(attributes: Mapping[str, str], duration_ms: int | None) -> dict[str, str]:
    """Return the attributes with another time to live: 0 for ever, None for the broker's default."""
    result = {name: value for name, value in attributes.items() if name not in TTL_KEYS}
    if duration_ms is None:
        return result
    if duration_ms % HOUR_MS or not duration_ms:
        result[TTL_MS] = str(duration_ms)
    if duration_ms:
        result[RESERVE_TIME] = str(-(-duration_ms // HOUR_MS))
    return result


def ttl_change(attributes: Mapping[str, str], duration_ms: int | None) -> dict[str, str]:
    """Return the change for `apply_change` that sets another time to live: 0 for ever, None for the broker's default.

    `attributes`: the topic's present ones. The change is empty if the topic follows the broker's default already.
    """
    if duration_ms is not None:
        return {f"+{TTL_MS}": str(duration_ms)}
    return {f"-{name}": "" for name in sorted(TTL_KEYS) if name in attributes}


def _with_equal_ttl_keys(attributes: dict[str, str], *, set_keys: set[str], changed_keys: set[str]) -> dict[str, str]:
    """Return the attributes with both keys of the time to live rewritten, if a change sets or removes one of them.

    `attributes` have the change already. `set_keys`: keys that it sets. `changed_keys`: keys that it sets or removes.

    Raises:
        InvalidRequestError: The change sets both keys, to different times.
    """
    if changed_keys.isdisjoint(TTL_KEYS):
        return attributes
    exact_ms = _number(attributes[TTL_MS]) if TTL_MS in set_keys else None
    exact_ms = exact_ms if exact_ms is None or exact_ms >= 0 else None
    if RESERVE_TIME not in set_keys:
        return ttl_attributes(attributes, exact_ms)
    reserve_time = attributes[RESERVE_TIME]
    reserved_ms = _reserved_ms(reserve_time)
    if exact_ms is None:
        result = ttl_attributes(attributes, reserved_ms)
        # A given -1 or 0 is stored as it is: tools show it.
        return result if reserved_ms is not None else {**result, RESERVE_TIME: reserve_time}
    result = ttl_attributes(attributes, exact_ms)
    # Not different: the rounded-up hours that are stored beside these milliseconds, or -1 beside "for ever".
    if reserved_ms != exact_ms and result.get(RESERVE_TIME, "-1") != reserve_time:
        raise InvalidRequestError(f"{RESERVE_TIME} and {TTL_MS} differ", reserve_time=reserve_time, ttl_ms=exact_ms)
    return result


def _reserved_ms(text: str) -> int | None:
    """Return the time to live in ms that a valid `reserve.time` sets; None for the broker's default."""
    hours = _number(text)
    if hours is None:
        return parse_duration_ms(text)
    return min(hours * HOUR_MS, LONG_MAX) if hours > 0 else None


def full_policy(attributes: Mapping[str, str], *, default: str) -> FullPolicy:
    """Return the topic's policy for a full disk; `default` if its attribute is missing or, in a file, invalid."""
    text = attributes.get(FULL_POLICY, default)
    return FullPolicy(text if text in list(FullPolicy) else default)


def _number(text: str | None) -> int | None:
    """Return the number; None if the text is missing or invalid. Values from files have not been checked."""
    return int(text) if text is not None and _is_number_from_minus_one(text) else None


def decode_ttl_default(data: bytes | None) -> int | None:
    """Return the broker's default time to live in ms that an earlier start saved (`TopicTable.encode_ttl_default`).

    None when `data` is None (no file), or when that default kept messages for ever.

    Raises:
        CorruptDataError: The file's content has another form.
    """
    if data is None:
        return None
    try:
        return msgspec.json.decode(data, type=dict[str, int])["defaultMs"] or None
    except (msgspec.MsgspecError, KeyError) as error:
        raise CorruptDataError("the saved default time to live cannot be read", file=TTL_DEFAULT_FILE_NAME) from error
