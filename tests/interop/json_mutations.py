"""JSON bodies as clients in any language might write them: of the right types, then with members of others.

`Author.written` makes a body of a type and records its values: most members have the right form, some the form that
other libraries give them (ordinals, numbers as text, null, one item where a list belongs), and the text may be in one
of the forms that fastjson reads. It gives the text and its values, so that an answer can be judged.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from msgspec import inspect

TEXTS = (
    "",
    "orders",
    "a b",
    "5",
    "-17",
    "größe",
    "\U0001f600",
    'quo"te',
    "it's",
    "back\\slash",
    "line\nend",
    "*",
    "null",
)
NUMBERS = (0, 1, -1, 5, 8, 17, 2**31 - 1, -(2**31))
LONG_NUMBERS = (*NUMBERS, 2**31, 1_795_497_553_178, 2**63 - 1, -(2**63))
BIT_SETS = ("AQ==", "AQIAAAAAAABA", "")
MUTATION_RATE = 0.08


@dataclass(frozen=True, slots=True)
class Raw:
    """A scalar in the words of its text."""

    text: str


@dataclass(frozen=True, slots=True)
class Key:
    """An object that is a key."""

    members: tuple[tuple[str, Any], ...]


Pairs = list[tuple[Any, Any]]
CONTAINERS = (inspect.StructType, inspect.DictType, inspect.ListType, inspect.SetType)


@dataclass(slots=True)
class ObjectNode:
    """An object: its members in order; a name may be there twice."""

    members: Pairs

    def last(self, name: str) -> Any:
        """The member of that name that counts, or None."""
        found = [value for key, value in self.members if key == name]
        return found[-1] if found else None


@dataclass(frozen=True, slots=True)
class Form:
    """How a text is written."""

    quote: str = '"'
    bare_names: bool = False
    space: str = ""
    comma: str = ","
    last_comma: str = ""
    head: str = ""
    tail: str = ""
    cut: int = 0


FORMS = (
    Form(quote="'"),
    Form(bare_names=True),
    Form(space=" \n\t"),
    Form(comma=",,"),
    Form(comma=" "),
    Form(last_comma=","),
    Form(head="/* first */", comma=", /* and */ "),
    Form(head="\ufeff"),
    Form(tail=" \r\n"),
    Form(tail="}"),
    Form(tail="x"),
    Form(cut=1),
    Form(cut=3),
)


@dataclass(frozen=True, slots=True)
class Written:
    """A body, and what stands in it."""

    text: bytes
    node: Any
    form: Form

    @classmethod
    def of(cls, node: Any, form: Form) -> Written:
        """The node in that form."""
        text = form.head + _rendered(node, form) + form.tail
        return cls(text[: len(text) - form.cut].encode(), node, form)


class Author:
    """Writes bodies under one seed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._is_formed = False

    def written(self, described: inspect.Type) -> Written:
        """One body."""
        # Odd members and odd forms apart: what one decoder takes of the one, another takes of the other.
        form = self._random.choice(FORMS) if self._random.random() < 0.2 else Form()
        self._is_formed = form != Form()
        rate = self._random.choice((0.0, MUTATION_RATE, 4 * MUTATION_RATE)) if not self._is_formed else 0.0
        node = self._value(described, rate, 0)
        if isinstance(node, ObjectNode) and self._random.random() < 0.1 and form == Form():
            node.members.insert(self._random.randint(0, len(node.members)), ("notAMember", self._anything(2)))
        return Written.of(node, form)

    def _value(self, described: inspect.Type, rate: float, depth: int) -> Any:
        names: tuple[str, ...] = ()
        if isinstance(described, inspect.Metadata):
            names = (described.extra or {}).get("names", ())
            described = described.type
        if isinstance(described, inspect.UnionType):
            (described,) = (kind for kind in described.types if not isinstance(kind, inspect.NoneType))
            return self._value(described, rate, depth)
        is_odd = depth > 0 and self._random.random() < rate
        if isinstance(described, inspect.StructType):
            return self._odd_structure(described, rate, depth) if is_odd else self._structure(described, rate, depth)
        if isinstance(described, inspect.DictType):
            return self._odd_map() if is_odd else self._map(described, rate, depth)
        if isinstance(described, inspect.ListType | inspect.SetType):
            return self._odd_list(described, rate, depth) if is_odd else self._list(described, rate, depth)
        if names:
            return self._odd_enum(names) if is_odd else self._random.choice(names)
        plain, odd = self._scalars(described)
        return self._random.choice(odd) if is_odd else plain()

    # -- as it should be -----------------------------------------------------------------------------------------------

    def _structure(self, described: inspect.StructType, rate: float, depth: int) -> ObjectNode:
        members: Pairs = []
        for field in described.fields:
            is_single = bool(rate) or self._is_formed or isinstance(field.type, CONTAINERS)
            for _ in range(self._random.choice((0, *[1] * 8, 1 if is_single else 2))):
                if field.encode_name == "b":  # of an acknowledgement: a set of bits
                    members.append(("b", self._random.choice(BIT_SETS)))
                    continue
                members.append((field.encode_name, self._value(field.type, rate, depth + 1)))
        self._random.shuffle(members)
        return ObjectNode(members)

    def _map(self, described: inspect.DictType, rate: float, depth: int) -> ObjectNode:
        members: dict[Any, Any] = {}
        for _ in range(self._random.choice((0, 1, 1, 2))):
            value = self._value(described.value_type, rate, depth + 1)
            members[self._key(described.key_type)] = Raw("null") if self._random.random() < rate / 4 else value
        return ObjectNode(list(members.items()))

    def _key(self, described: inspect.Type) -> Any:
        if isinstance(described, inspect.StructType):
            # Whole: RocketMQ puts queues in order by their names.
            return Key(tuple((field.encode_name, self._value(field.type, 0.0, 2)) for field in described.fields))
        if isinstance(described, inspect.IntType):
            number = self._random.choice((0, 1, 7))
            return self._random.choice((Raw(str(number)), str(number)))
        return self._random.choice(TEXTS[1:])

    def _list(self, described: inspect.ListType | inspect.SetType, rate: float, depth: int) -> list[Any]:
        count = self._random.choice((0, 1, 1, 2, 3))
        items = [self._value(described.item_type, rate, depth + 1) for _ in range(count)]
        if self._random.random() < rate / 4:
            items.append(Raw("null"))
        return items

    def _scalars(self, described: inspect.Type) -> tuple[Callable[[], Any], tuple[Any, ...]]:
        """One as it should be, and what others make of it."""
        choose = self._random.choice
        if isinstance(described, inspect.StrType):
            return lambda: choose(TEXTS), ODD_TEXTS
        if isinstance(described, inspect.BoolType):
            return lambda: choose((True, False)), ODD_FLAGS
        if isinstance(described, inspect.FloatType):
            return lambda: choose((0.0, 1.5, -2.25, 1e9)), ODD_DOUBLES
        assert isinstance(described, inspect.IntType), described
        numbers = NUMBERS if described.le == 2**31 - 1 else LONG_NUMBERS
        return lambda: choose(numbers), ODD_NUMBERS

    # -- as others write it --------------------------------------------------------------------------------------------

    def _odd_enum(self, names: tuple[str, ...]) -> Any:
        ordinal = self._random.randrange(len(names))
        odd = (
            *(
                ordinal,
                str(ordinal),
                names[ordinal].lower(),
                names[ordinal].replace("_", "-"),
                len(names),
                -1,
                "NO_SUCH",
            ),
            *("", Raw("null"), "null", True, [0], ObjectNode([]), Raw(f"{ordinal}.0"), str(len(names))),
        )
        return self._random.choice(odd)

    def _odd_structure(self, described: inspect.StructType, rate: float, depth: int) -> Any:
        whole = self._structure(described, rate, depth)
        return self._random.choice((Raw("null"), "", "x", 5, [whole], [whole, whole]))

    def _odd_map(self) -> Any:
        return self._random.choice((Raw("null"), "", "x", [1]))

    def _odd_list(self, described: inspect.ListType | inspect.SetType, rate: float, depth: int) -> Any:
        item = self._value(described.item_type, 0.0, depth + 1)
        if isinstance(described, inspect.ListType) and isinstance(described.item_type, inspect.IntType):
            return [item, Raw("null")]  # a long[] in Java, which takes nothing else
        return self._random.choice((Raw("null"), "", item, [item, Raw("null")]))

    def _anything(self, depth: int) -> Any:
        simple = self._random.choice((*TEXTS, *LONG_NUMBERS, True, False, Raw("null"), Raw("1.5e3"), Raw("7L")))
        if depth == 0:
            return simple
        inner = self._anything(depth - 1)
        return self._random.choice((simple, [inner], [], ObjectNode([("x", inner)]), ObjectNode([])))


ODD_NUMBERS = (
    *("7", "-7", "+7", "", "null", "x", "7.9", "1e3", "1,000", " 7", "seven", "true", "7L", str(2**31), str(2**63)),
    *(Raw("null"), Raw("true"), Raw("false"), Raw("7.9"), Raw("-7.9"), Raw("1e3"), Raw("007"), Raw("+7"), Raw("7L")),
    *(Raw("-0"), Raw(f"{2**31}.5"), 2**31, -(2**31) - 1, 2**63, 2**64 + 3, [7], ["7"], [7, 8], [], ["x"]),
    *(ObjectNode([("val", 7)]), ObjectNode([("x", 7)]), ObjectNode([])),
)
ODD_FLAGS = (
    *("true", "FALSE", "True", "1", "0", "Y", "N", "y", "2", "yes", "", "null", "NULL", " true"),
    *(1, 0, 2, -1, 17, Raw("1.0"), Raw("null"), [True, False], [], ObjectNode([])),
)
ODD_TEXTS = (
    *(5, -5, 2**63, Raw("007"), Raw("1.50"), Raw("0.00000012"), Raw("1e3"), Raw("-2.5e-7"), Raw("null"), True, False),
    *(
        ["x"],
        [],
        ["x", "y"],
        [5],
        [Raw("null")],
        [True, Raw("null")],
        ObjectNode([]),
        ObjectNode([("b", 1), ("a", "x")]),
    ),
    ObjectNode([("b", Raw("null")), ("a", [Raw("1.50"), ObjectNode([])])]),
)
ODD_DOUBLES = (7, "7", "1.5", "", "null", "x", Raw("null"), True, Raw("1e3"), "1e3", Raw("007"), [7])


def _rendered(node: Any, form: Form, *, is_outside: bool = True) -> str:
    if isinstance(node, Raw):
        return node.text
    if isinstance(node, str):
        return _quoted(node, form)
    if isinstance(node, list):
        return _joined("[", [_rendered(item, form, is_outside=False) for item in node], "]", form, is_outside=False)
    if isinstance(node, ObjectNode):
        pieces = [
            f"{_name(key, form)}{form.space}:{form.space}{_rendered(value, form, is_outside=False)}"
            for key, value in node.members
        ]
        return _joined("{", pieces, "}", form, is_outside=is_outside)
    return json.dumps(node)


def _joined(start: str, pieces: list[str], end: str, form: Form, *, is_outside: bool) -> str:
    # What separates members strangely does so in the body itself: within members that it has not, fastjson 2 is strict.
    comma = form.comma if is_outside else ","
    last_comma = form.last_comma if is_outside and pieces else ""
    return start + (comma + form.space).join(pieces) + last_comma + end


def _name(key: Any, form: Form) -> str:
    if isinstance(key, Key):
        return _rendered(ObjectNode(list(key.members)), Form())
    if isinstance(key, Raw):
        return key.text
    return key if form.bare_names and key != "null" and key.isalpha() and key.isascii() else _quoted(key, form)


def _quoted(text: str, form: Form) -> str:
    if form.quote == '"':
        return json.dumps(text, ensure_ascii=False)
    inner = json.dumps(text, ensure_ascii=False)[1:-1].replace('\\"', '"').replace("'", "\\'")
    return f"'{inner}'"


def is_null(node: Any) -> bool:
    """Whether a member counts as not sent where no text belongs."""
    return node is None or node == Raw("null") or (isinstance(node, str) and node.lower() in ("", "null"))
