"""Topic attributes: what they may be, how a change is written, and the time to live that they mean.

A change is text like `+reserve.time=24,-message.type`: `+key=value` sets, `-key` removes; a topic that is being created
takes `+` only. Topics carry the result without signs.

    key                  values                                              default     changeable
    queue.type           SimpleCQ, BatchCQ                                   SimpleCQ    no
    cleanup.policy       DELETE, COMPACTION                                  DELETE      no
    message.type         NORMAL, FIFO, DELAY, TRANSACTION, MIXED, UNSPECIFIED NORMAL     yes
    reserve.time         whole hours, or finer: 90s, 1d12h                   -1          yes
                         -1 or 0 = the broker's default
    thermocline.ttl.ms   milliseconds, 0 = for ever, -1 = the default        -1          yes
    thermocline.full.policy  refuse, drop-oldest; see drop_oldest.py         the broker's default    yes

The whole change is refused when a key is unknown or named twice, a value is wrong, or what cannot be changed would be.

The last two are one time to live in two spellings, and whichever is changed the other one follows:

    time to live     reserve.time          thermocline.ttl.ms
    whole hours      the hours             -
    finer            hours, rounded up     milliseconds
    for ever         -                     0
    the default      - (-1 or 0 if given)  -

So Apache RocketMQ, which has only the first one, never deletes a message too soon. Removing either of them makes the
topic follow the broker's default again. Where a file has both, the finer one counts.
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
    """One known attribute."""

    is_changeable: bool
    accepts: Callable[[str], bool]


def _one_of(*values: str) -> Callable[[str], bool]:
    return frozenset(values).__contains__


def _whole_number_from_minus_one(text: str) -> bool:
    digits = text[1:] if text.startswith("-") else text
    if not digits.isascii() or not digits.isdecimal() or len(digits) > NUMBER_DIGITS_MAX:
        return False
    return -1 <= int(text) <= LONG_MAX


def _hours_or_duration(text: str) -> bool:
    if _whole_number_from_minus_one(text):
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
    RESERVE_TIME: Attribute(is_changeable=True, accepts=_hours_or_duration),
    TTL_MS: Attribute(is_changeable=True, accepts=_whole_number_from_minus_one),
    FULL_POLICY: Attribute(is_changeable=True, accepts=_one_of(*FullPolicy)),
}

# What is not built yet, so that no topic is created whose messages would be kept otherwise than it says.
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
    """The attributes after a change in the form that `parse_change` gives; `is_new` for a topic that is being created.

    Raises:
        InvalidRequestError: The change breaks a rule; nothing of it counts.
    """
    result = dict(current)
    named: set[str] = set()
    signed = [(signed_key[:1], signed_key[1:]) for signed_key in change]
    for (sign, key), value in zip(signed, change.values(), strict=True):
        if not key or "+" in key or "-" in key:
            raise InvalidRequestError("kv string format wrong.")
        if key in named:
            raise InvalidRequestError(f"alter duplication key. key: {key}")
        named.add(key)
        if is_new and sign != "+":
            raise InvalidRequestError(f"only add attribute is supported while creating topic. key: {key}")
        # One time to live in two spellings is removed by either of them.
        spellings = TTL_KEYS if key in TTL_KEYS else {key}
        if sign == "-" and current.keys().isdisjoint(spellings):
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
    return _with_one_ttl(result, {key for sign, key in signed if sign == "+"}, {key for _, key in signed})


def check_supported(attributes: Mapping[str, str]) -> None:
    """Pass the attributes that another broker has given a topic.

    Raises:
        InvalidRequestError: One of them asks for what is not built.
    """
    for key, value in UNSUPPORTED_VALUES.items():
        if attributes.get(key) == value:
            raise InvalidRequestError(f"not supported yet. key: {key}, value: {value}")


def ttl_ms(attributes: Mapping[str, str], *, default_ms: int | None) -> int | None:
    """Time to live in ms that the attributes mean; None keeps messages for ever."""
    fine = _number(attributes.get(TTL_MS))
    if fine is not None and fine >= 0:
        return fine or None
    hours = _number(attributes.get(RESERVE_TIME))
    if hours is not None and hours > 0:
        return min(hours * HOUR_MS, LONG_MAX)
    return default_ms


def ttl_attributes(attributes: Mapping[str, str], duration_ms: int | None) -> dict[str, str]:
    """The attributes with another time to live: 0 for ever, None for the broker's default."""
    result = {name: value for name, value in attributes.items() if name not in TTL_KEYS}
    if duration_ms is None:
        return result
    if duration_ms % HOUR_MS or not duration_ms:
        result[TTL_MS] = str(duration_ms)
    if duration_ms:
        result[RESERVE_TIME] = str(-(-duration_ms // HOUR_MS))
    return result


def ttl_change(attributes: Mapping[str, str], duration_ms: int | None) -> dict[str, str]:
    """The change that gives a topic another time to live; 0 for ever, None for the broker's default."""
    if duration_ms is not None:
        return {f"+{TTL_MS}": str(duration_ms)}
    return {f"-{name}": "" for name in sorted(TTL_KEYS) if name in attributes}


def _with_one_ttl(attributes: dict[str, str], added: set[str], named: set[str]) -> dict[str, str]:
    """Both spellings of the time to live as the one says that a change named.

    Raises:
        InvalidRequestError: The change names both, and they differ.
    """
    if named.isdisjoint(TTL_KEYS):
        return attributes
    fine_ms = _number(attributes[TTL_MS]) if TTL_MS in added else None
    fine_ms = fine_ms if fine_ms is None or fine_ms >= 0 else None
    if RESERVE_TIME not in added:
        return ttl_attributes(attributes, fine_ms)
    reserve_time = attributes[RESERVE_TIME]
    coarse_ms = _reserved_ms(reserve_time)
    if fine_ms is None:
        result = ttl_attributes(attributes, coarse_ms)
        # Kept as it was given, for tools that show it.
        return result if coarse_ms is not None else {**result, RESERVE_TIME: reserve_time}
    result = ttl_attributes(attributes, fine_ms)
    if coarse_ms != fine_ms and result.get(RESERVE_TIME, "-1") != reserve_time:
        raise InvalidRequestError(f"{RESERVE_TIME} and {TTL_MS} differ", reserve_time=reserve_time, ttl_ms=fine_ms)
    return result


def _reserved_ms(text: str) -> int | None:
    """The time to live that a value of `reserve.time` means, in hours or finer; None: the broker's default."""
    hours = _number(text)
    if hours is None:
        return parse_duration_ms(text)
    return min(hours * HOUR_MS, LONG_MAX) if hours > 0 else None


def full_policy(attributes: Mapping[str, str], *, default: str) -> FullPolicy:
    """The topic's policy for a full disk; an invalid value in a file means the default."""
    text = attributes.get(FULL_POLICY, default)
    return FullPolicy(text if text in list(FullPolicy) else default)


def _number(text: str | None) -> int | None:
    """Attributes come from files too, where values may be invalid."""
    return int(text) if text is not None and _whole_number_from_minus_one(text) else None


def decode_ttl_default(data: bytes | None) -> int | None:
    """The former default in a file of `encode_ttl_default`; None when there was none.

    Raises:
        CorruptDataError: It is no such file.
    """
    if data is None:
        return None
    try:
        return msgspec.json.decode(data, type=dict[str, int])["defaultMs"] or None
    except (msgspec.MsgspecError, KeyError) as error:
        raise CorruptDataError("the former default time to live cannot be read", file=TTL_DEFAULT_FILE_NAME) from error
