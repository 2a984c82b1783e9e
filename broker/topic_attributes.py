"""Topic attributes: what they may be, how a change is written, and the time to live that they mean.

A change is text like `+reserve.time=24,-message.type`: `+key=value` sets, `-key` removes; a topic that is being created
takes `+` only. Topics carry the result without signs.

    key                  values                                              default     changeable
    queue.type           SimpleCQ, BatchCQ                                   SimpleCQ    no
    cleanup.policy       DELETE, COMPACTION                                  DELETE      no
    message.type         NORMAL, FIFO, DELAY, TRANSACTION, MIXED, UNSPECIFIED NORMAL     yes
    reserve.time         whole hours, -1 or 0 = the broker's default         -1          yes
    thermocline.ttl.ms   milliseconds, -1 = as reserve.time says, 0 = ever   -1          yes
    thermocline.full.policy  refuse, drop-oldest; see drop_oldest.py         the broker's default    yes

The whole change is refused when a key is unknown or named twice, a value is wrong, or what cannot be changed would be.
Time to live: `thermocline.ttl.ms` unless absent or -1, else `reserve.time` unless absent or -1, else the broker's
default.
Source: common/TopicAttributes.java, common/attribute/*.java, Apache RocketMQ 5.3.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from thermocline.remoting.errors import InvalidRequestError
from thermocline.tiered.tier_config import FullPolicy

RESERVE_TIME = "reserve.time"
TTL_MS = "thermocline.ttl.ms"
FULL_POLICY = "thermocline.full.policy"
MESSAGE_TYPE = "message.type"
MESSAGE_TYPE_MIXED = "MIXED"

LONG_MAX = 2**63 - 1
HOUR_MS = 3_600_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Attribute:
    """One known attribute."""

    is_changeable: bool
    accepts: Callable[[str], bool]


def _one_of(*values: str) -> Callable[[str], bool]:
    return frozenset(values).__contains__


def _whole_number_from_minus_one(text: str) -> bool:
    digits = text[1:] if text.startswith("-") else text
    return digits.isascii() and digits.isdecimal() and -1 <= int(text) <= LONG_MAX


ATTRIBUTES: Mapping[str, Attribute] = {
    "queue.type": Attribute(is_changeable=False, accepts=_one_of("SimpleCQ", "BatchCQ")),
    "cleanup.policy": Attribute(is_changeable=False, accepts=_one_of("DELETE", "COMPACTION")),
    MESSAGE_TYPE: Attribute(
        is_changeable=True,
        accepts=_one_of("UNSPECIFIED", "NORMAL", "FIFO", "DELAY", "TRANSACTION", MESSAGE_TYPE_MIXED),
    ),
    RESERVE_TIME: Attribute(is_changeable=True, accepts=_whole_number_from_minus_one),
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
    known: Mapping[str, Attribute] = ATTRIBUTES,
) -> dict[str, str]:
    """The attributes after a change in the form that `parse_change` gives; `is_new` for a topic that is being created.

    Raises:
        InvalidRequestError: The change breaks a rule; nothing of it counts.
    """
    result = dict(current)
    named: set[str] = set()
    for signed_key, value in change.items():
        sign, key = signed_key[:1], signed_key[1:]
        if not key or "+" in key or "-" in key:
            raise InvalidRequestError("kv string format wrong.")
        if key in named:
            raise InvalidRequestError(f"alter duplication key. key: {key}")
        named.add(key)
        if is_new and sign != "+":
            raise InvalidRequestError(f"only add attribute is supported while creating topic. key: {key}")
        if sign == "-" and key not in current:
            raise InvalidRequestError(f"attempt to delete a nonexistent key: {key}")
        if sign not in ("+", "-"):
            raise InvalidRequestError(f"wrong format key: {key}")
        attribute = known.get(key)
        if attribute is None:
            raise InvalidRequestError(f"unsupported key: {key}")
        if not is_new and not attribute.is_changeable:
            raise InvalidRequestError(f"attempt to update an unchangeable attribute. key: {key}")
        if sign == "-":
            del result[key]
            continue
        if not attribute.accepts(value):
            raise InvalidRequestError(f"value is not in range. key: {key}, value: {value}")
        if UNSUPPORTED_VALUES.get(key) == value:
            raise InvalidRequestError(f"not supported yet. key: {key}, value: {value}")
        result[key] = value
    return result


def ttl_ms(attributes: Mapping[str, str], *, default_ms: int | None) -> int | None:
    """Time to live in ms that the attributes mean; None keeps messages for ever."""
    fine = _number(attributes.get(TTL_MS))
    if fine is not None and fine >= 0:
        return fine or None
    hours = _number(attributes.get(RESERVE_TIME))
    if hours is not None and hours > 0:
        return hours * HOUR_MS
    return default_ms


def full_policy(attributes: Mapping[str, str], *, default: str) -> FullPolicy:
    """What a topic lets go of when the disk is full; what a file has that is no policy means the default."""
    text = attributes.get(FULL_POLICY, default)
    return FullPolicy(text if text in list(FullPolicy) else default)


def _number(text: str | None) -> int | None:
    """Attributes come from files too, where anybody may have written anything."""
    return int(text) if text is not None and _whole_number_from_minus_one(text) else None
