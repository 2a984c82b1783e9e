"""An independent model of the SQL92 filter: expressions as trees, their text, and what RocketMQ makes of them.

Nothing of `thermocline.filters` is used here. The model walks trees with values that carry their Java type, one rule of
the Java classes after the other; what a text is as a number is not computed but looked up in a table made by hand.
Strategies for trees and properties are at the end.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from random import Random
from typing import Any, TypeAlias

from hypothesis import strategies as st


class RejectedError(Exception):
    """The expression does not compile."""


class FailedError(Exception):
    """The evaluation throws."""


# -- trees ---------------------------------------------------------------------------------------------------------

JavaValue: TypeAlias = tuple[str, Any] | None
"""(type, value), or None for null."""


@dataclass(frozen=True)
class Name:
    name: str


@dataclass(frozen=True)
class Literal:
    text: str
    value: JavaValue


@dataclass(frozen=True)
class Prefix:
    sign: str  # + - NOT
    operand: Tree


@dataclass(frozen=True)
class Chain:
    word: str  # AND OR
    operands: tuple[Tree, ...]


@dataclass(frozen=True)
class Compare:
    sign: str  # = <> < <= > >=
    left_side: Tree
    right_side: Tree


@dataclass(frozen=True)
class NullTest:
    operand: Tree
    negated: bool


@dataclass(frozen=True)
class Range:
    value: Tree
    low: Tree
    high: Tree
    negated: bool


@dataclass(frozen=True)
class PartTest:
    word: str  # CONTAINS STARTSWITH ENDSWITH
    operand: Tree
    part: str
    negated: bool


@dataclass(frozen=True)
class Listed:
    operand: Tree
    entries: tuple[str, ...]
    negated: bool


@dataclass(frozen=True)
class Parentheses:
    inner: Tree


Tree: TypeAlias = Name | Literal | Prefix | Chain | Compare | NullTest | Range | PartTest | Listed | Parentheses


# -- text ----------------------------------------------------------------------------------------------------------

_OR, _AND, _EQUALITY, _COMPARISON, _UNARY = range(5)
_SPACES = (" ", "  ", "\n", "\t", "\r\n", "\f", " /* AND */ ", "/***/", " -- NOT 'it\n")
_KEYWORDS = frozenset(
    {"AND", "OR", "NOT", "BETWEEN", "IN", "IS", "NULL", "TRUE", "FALSE", "CONTAINS", "STARTSWITH", "ENDSWITH"}
)

_SIGNS = ("(", ")", "(", ")", ",", "+", "-", "=", "<>", "<", "<=", ">", ">=")
_OPERANDS = ("5", "0", "007", "5L", "0L", "1.5.5", "1e", "1e1", "a", "b", "'x'", "''")
_NO_TOKENS = ("'", ";", "--", "/*", "*/", "#", '"', "\n", "\u00e9")
_ODD_WORDS = (*sorted(_KEYWORDS), *_SIGNS, *_OPERANDS, *_NO_TOKENS)


def expression_text(tree: Tree, style: int) -> str:
    """The tree as text, in parentheses where it needs them; `style` seeds blanks, comments and case."""
    return _joined(_words(tree, _OR), Random(style))


def damaged_text(tree: Tree, style: int) -> str:
    """The text of the tree with some words dropped, doubled, exchanged or put in; seldom an expression."""
    random = Random(style)
    words = _words(tree, _OR)
    for _ in range(random.randint(1, 3)):
        place = random.randrange(len(words) + 1)
        words[place : place + random.choice((0, 0, 1, 2))] = random.choices(
            [*_ODD_WORDS, *words], k=random.choice((0, 1, 2))
        )
    return _joined(words, random) if words else ""


def _joined(words: Sequence[str], random: Random) -> str:
    words = [_in_some_case(word, random) if word in _KEYWORDS else word for word in words]
    pieces = [words[0]]
    for before, word in pairwise(words):
        can_touch = before in "(),=" or word in "(),="
        pieces.append("" if can_touch and random.random() < 0.5 else random.choice(_SPACES))
        pieces.append(word)
    return "".join(pieces)


def _in_some_case(word: str, random: Random) -> str:
    return random.choice((word, word.lower(), "".join(map(random.choice, zip(word.lower(), word, strict=True)))))


def _words(tree: Tree, wanted: int) -> list[str]:
    level, words = _level_and_words(tree)
    return words if level >= wanted else ["(", *words, ")"]


def _level_and_words(tree: Tree) -> tuple[int, list[str]]:
    match tree:
        case Name(name):
            return _UNARY, [name]
        case Literal(text, _):
            return _UNARY, [text]
        case Parentheses(inner):
            return _UNARY, ["(", *_words(inner, _OR), ")"]
        case Prefix(sign, operand):
            return _UNARY, [sign, *_words(operand, _UNARY)]
        case Chain(word, operands):
            level = _OR if word == "OR" else _AND
            words = _words(operands[0], level + 1)
            for operand in operands[1:]:
                words += [word, *_words(operand, level + 1)]
            return level, words
        case Compare(sign, left_side, right_side):
            level = _EQUALITY if sign in ("=", "<>") else _COMPARISON
            return level, [*_words(left_side, level), sign, *_words(right_side, level + 1)]
        case NullTest(operand, negated):
            return _EQUALITY, [*_words(operand, _EQUALITY), "IS", *_not(negated), "NULL"]
        case Range(value, low, high, negated):
            ends = [*_words(low, _UNARY), "AND", *_words(high, _UNARY)]
            return _COMPARISON, [*_words(value, _COMPARISON), *_not(negated), "BETWEEN", *ends]
        case PartTest(word, operand, part, negated):
            return _COMPARISON, [*_words(operand, _COMPARISON), *_not(negated), word, _quoted(part)]
        case Listed(operand, entries, negated):
            listed = [word for entry in entries for word in (",", _quoted(entry))]
            return _COMPARISON, [*_words(operand, _COMPARISON), *_not(negated), "IN", "(", *listed[1:], ")"]


def _not(negated: bool) -> list[str]:
    return ["NOT"] if negated else []


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


# -- what compiles -------------------------------------------------------------------------------------------------

# The Java class that a part of the expression becomes, as far as the checks tell them apart.
_PROPERTY, _CONSTANT, _TRUTH_CONSTANT, _BOOLEAN, _OTHER = "property", "constant", "truth constant", "boolean", "other"


def check(tree: Tree) -> None:
    """RejectedError when RocketMQ does not compile the tree."""
    _check_condition(_class_of(tree))


def _class_of(tree: Tree) -> str:
    match tree:
        case Name():
            return _PROPERTY
        case Literal(_, value):
            return _TRUTH_CONSTANT if value is None or value[0] == "Boolean" else _CONSTANT
        case Parentheses(inner):
            return _class_of(inner)
        case Prefix("+", operand):
            return _class_of(operand)
        case Prefix("-", operand):
            _class_of(operand)
            return _OTHER
        case Prefix(_, operand):
            _check_condition(_class_of(operand))
        case Chain(_, operands):
            for operand in operands:
                _check_condition(_class_of(operand))
        case Compare("=" | "<>", left_side, right_side):
            left_class, right_class = _class_of(left_side), _class_of(right_side)
            if any(_literal(side) == Literal("NULL", None) for side in (left_side, right_side)):
                raise RejectedError("= NULL")
            if left_class == _TRUTH_CONSTANT and right_class == _CONSTANT:
                raise RejectedError("TRUE = 1")
        case Compare(_, left_side, right_side):
            _check_number(left_side)
            _check_number(right_side)
        case NullTest(operand, _) | PartTest(_, operand, _, _):
            _class_of(operand)
        case Listed(operand, _, _):
            if _class_of(operand) != _PROPERTY:
                raise RejectedError("1 IN")
        case Range(value, low, high, negated):
            for part in (value, low, high):
                _check_number(part)
            low_literal, high_literal = _literal(low), _literal(high)
            if not negated and low_literal is not None and high_literal is not None:
                assert low_literal.value is not None
                assert high_literal.value is not None
                if _compare(high_literal.value, low_literal.value) < 0:
                    raise RejectedError("BETWEEN 2 AND 1")
    return _BOOLEAN


def _literal(tree: Tree) -> Literal | None:
    """The literal that the tree is, through parentheses and plus signs."""
    match tree:
        case Literal():
            return tree
        case Parentheses(inner) | Prefix("+", inner):
            return _literal(inner)
    return None


def _check_condition(java_class: str) -> None:
    if java_class in (_CONSTANT, _OTHER):
        raise RejectedError("no condition")


def _check_number(tree: Tree) -> None:
    java_class = _class_of(tree)
    literal = _literal(tree)
    is_number = literal is not None and literal.value is not None and literal.value[0] in _NUMBER_TYPES
    if java_class in (_BOOLEAN, _TRUTH_CONSTANT) or (java_class == _CONSTANT and not is_number):
        raise RejectedError("not a number")


# -- what it evaluates to ------------------------------------------------------------------------------------------

_NUMBER_TYPES = ("Integer", "Long", "Double")

NAN, INFINITY = float("nan"), float("inf")
NUMBERS_IN_TEXTS: dict[str, tuple[int | None, int | None, float | None]] = {
    # text: what Integer.valueOf, Long.valueOf, Double.valueOf make of it; None where they throw
    "": (None, None, None),
    "0": (0, 0, 0.0),
    "-0": (0, 0, -0.0),
    "5": (5, 5, 5.0),
    "007": (7, 7, 7.0),
    "+7": (7, 7, 7.0),
    "-3": (-3, -3, -3.0),
    " 5": (None, None, 5.0),
    "5L": (None, None, None),
    "5f": (None, None, 5.0),
    "1.5": (None, None, 1.5),
    "1.": (None, None, 1.0),
    ".5": (None, None, 0.5),
    "1e1": (None, None, 10.0),
    "1e": (None, None, None),
    "1_0": (None, None, None),
    "0x1p3": (None, None, 8.0),
    "0x5": (None, None, None),
    "2147483647": (2147483647, 2147483647, 2147483647.0),
    "2147483648": (None, 2147483648, 2147483648.0),
    "-2147483648": (-2147483648, -2147483648, -2147483648.0),
    "9007199254740993": (None, 9007199254740993, 9007199254740992.0),
    "9223372036854775807": (None, 9223372036854775807, 9223372036854775808.0),
    "9223372036854775808": (None, None, 9223372036854775808.0),
    "NaN": (None, None, NAN),
    "nan": (None, None, None),
    "-Infinity": (None, None, -INFINITY),
    "Infinity": (None, None, INFINITY),
    "inf": (None, None, None),
    "1e999": (None, None, INFINITY),
    "\uff15": (5, 5, None),
    "true": (None, None, None),
    "TrUe": (None, None, None),
    "false": (None, None, None),
    "abc": (None, None, None),
    "ABC": (None, None, None),
    "it's": (None, None, None),
    "\u00e9\U0001f600": (None, None, None),
}


def evaluate(tree: Tree, properties: Mapping[str, str]) -> JavaValue:
    """What the tree is for these properties; FailedError when RocketMQ throws."""
    match tree:
        case Name(name):
            return ("String", properties[name]) if name in properties else None
        case Literal(_, value):
            return value
        case Parentheses(inner) | Prefix("+", inner):
            return evaluate(inner, properties)
        case Prefix("-", operand):
            value = evaluate(operand, properties)
            return (value[0], -value[1]) if value is not None and value[0] in _NUMBER_TYPES else None
        case Prefix(_, operand):
            return _opposite(_as_condition(operand, properties))
        case Chain(word, operands):
            return _folded(word, operands, properties)
        case Compare("=", left_side, right_side):
            return _equal(evaluate(left_side, properties), evaluate(right_side, properties))
        case Compare("<>", left_side, right_side):
            return _opposite(_equal(evaluate(left_side, properties), evaluate(right_side, properties)))
        case Compare(sign, left_side, right_side):
            return _ordered(sign, left_side, right_side, properties)
        case NullTest(operand, negated):
            return ("Boolean", (evaluate(operand, properties) is None) is not negated)
        case Range(value_tree, low, high, False):
            return _folded("AND", [Compare(">=", value_tree, low), Compare("<=", value_tree, high)], properties)
        case Range(value_tree, low, high, _):
            return _folded("OR", [Compare("<", value_tree, low), Compare(">", value_tree, high)], properties)
        case PartTest(word, operand, part, negated):
            return ("Boolean", _has_part(word, operand, part, negated, properties))
        case Listed(operand, entries, negated):
            value = evaluate(operand, properties)
            return None if value is None else ("Boolean", (value[1] in entries) is not negated)


def matches(tree: Tree, properties: Mapping[str, str]) -> bool:
    """Whether a broker hands the message on."""
    try:
        return _as_condition(tree, properties) == ("Boolean", True)
    except FailedError:
        return False


def _as_condition(tree: Tree, properties: Mapping[str, str]) -> JavaValue:
    value = evaluate(tree, properties)
    if value is not None and value[0] != "Boolean":
        return ("Boolean", False)
    return value


def _opposite(value: JavaValue) -> JavaValue:
    return None if value is None else ("Boolean", not value[1])


_RANK = {"AND": {False: 0, None: 1, True: 2}, "OR": {True: 0, None: 1, False: 2}}


def _folded(word: str, operands: Sequence[Tree], properties: Mapping[str, str]) -> JavaValue:
    """The lowest operand in the word's ranking; what ranks first ends the search."""
    rank, lowest = _RANK[word], 2
    for operand in operands:
        value = _as_condition(operand, properties)
        lowest = min(lowest, rank[None if value is None else value[1]])
        if lowest == 0:
            break
    result = {place: truth for truth, place in rank.items()}[lowest]
    return None if result is None else ("Boolean", result)


def _equal(left_side: JavaValue, right_side: JavaValue) -> JavaValue:
    if left_side is None:
        return ("Boolean", True) if right_side is None else None
    if right_side is None:
        return ("Boolean", False)
    return ("Boolean", _compare(left_side, right_side) == 0)


def _ordered(sign: str, left_tree: Tree, right_tree: Tree, properties: Mapping[str, str]) -> JavaValue:
    left_side = evaluate(left_tree, properties)
    if left_side is None:
        return None
    right_side = evaluate(right_tree, properties)
    if right_side is None:
        return None
    if left_side[0] == right_side[0] == "String":
        left_side, right_side = _converted(left_side[1], "Double"), _converted(right_side[1], "Double")
    order = _compare(left_side, right_side)
    return ("Boolean", {"<": order < 0, "<=": order <= 0, ">": order > 0, ">=": order >= 0}[sign])


def _compare(left_side: tuple[str, Any], right_side: tuple[str, Any]) -> int:
    """-1, 0 or 1; -1 too for what cannot be compared."""
    match left_side[0], right_side[0]:
        case "Boolean", "String":
            raise FailedError("a cast from Boolean to String")
        case "String", "Boolean":
            left_side = ("Boolean", left_side[1] in ("true", "TrUe"))
        case "String", str(wanted) if wanted in _NUMBER_TYPES:
            left_side = _converted(left_side[1], wanted)
        case str(wanted), "String" if wanted in _NUMBER_TYPES:
            right_side = _converted(right_side[1], wanted)
        case "Boolean", str(other) if other != "Boolean":
            return -1
        case str(other), "Boolean" if other != "Boolean":
            return -1
    if "Double" in (left_side[0], right_side[0]):
        return _signum(_double_rank(float(left_side[1])), _double_rank(float(right_side[1])))
    return _signum(left_side[1], right_side[1])


def _converted(text: str, wanted: str) -> tuple[str, Any]:
    value = NUMBERS_IN_TEXTS[text][_NUMBER_TYPES.index(wanted)]
    if value is None:
        raise FailedError(f"{text!r} is no {wanted}")
    return wanted, value


def _double_rank(value: float) -> int:
    """Doubles in Java's order are their bits in order, the negative ones backwards, NaN at the end."""
    if value != value:
        return 2**63
    (bits,) = struct.unpack(">q", struct.pack(">d", value))
    return int(bits) if bits >= 0 else -(2**63) - int(bits) - 1


def _signum(left_side: Any, right_side: Any) -> int:
    return -1 if left_side < right_side else int(left_side > right_side)


def _has_part(word: str, operand: Tree, part: str, negated: bool, properties: Mapping[str, str]) -> bool:
    if part == "":
        return False
    value = evaluate(operand, properties)
    if value is None or value[0] != "String":
        return False
    text, size = value[1], len(part)
    places = {"STARTSWITH": range(1), "ENDSWITH": range(len(text) - size, len(text) - size + 1)}
    found = any(place >= 0 and text[place : place + size] == part for place in places.get(word, range(len(text))))
    return found is not negated


# -- strategies ----------------------------------------------------------------------------------------------------

NAMES = ("a", "b", "TAGS", "_x$1")
TEXTS = tuple(NUMBERS_IN_TEXTS)
NUMBER_LITERALS = (
    Literal("0", ("Integer", 0)),
    Literal("5", ("Integer", 5)),
    Literal("7L", ("Integer", 7)),
    Literal("2147483647", ("Integer", 2147483647)),
    Literal("2147483648", ("Long", 2147483648)),
    Literal("9007199254740993l", ("Long", 9007199254740993)),
    Literal("9223372036854775807", ("Long", 9223372036854775807)),
    Literal("5.0", ("Double", 5.0)),
    Literal("5.", ("Double", 5.0)),
    Literal(".5", ("Double", 0.5)),
    Literal("05.", ("Double", 5.0)),
    Literal("15e-1", ("Double", 1.5)),
    Literal("1E1", ("Double", 10.0)),
    Literal("9007199254740992.0", ("Double", 9007199254740992.0)),
    Literal("1.7976931348623157e+308", ("Double", 1.7976931348623157e308)),
)
TRUTH_LITERALS = (Literal("TRUE", ("Boolean", True)), Literal("FALSE", ("Boolean", False)), Literal("NULL", None))

_texts = st.sampled_from(TEXTS)
_names = st.sampled_from(NAMES).map(Name)
_numbers = st.sampled_from(NUMBER_LITERALS)
_truths = st.sampled_from(TRUTH_LITERALS)
_strings = _texts.map(lambda text: Literal(_quoted(text), ("String", text)))
_order_signs = st.sampled_from(("<", "<=", ">", ">="))
_equality_signs = st.sampled_from(("=", "<>"))
_part_words = st.sampled_from(("CONTAINS", "STARTSWITH", "ENDSWITH"))
_parts = st.sampled_from(("", "e", "tr", "5", "b", "it's", "abc", "\U0001f600"))
_entries = st.lists(_texts, min_size=1, max_size=6).map(tuple)

_minus_numbers = st.builds(Prefix, st.just("-"), _numbers)
_orderables: st.SearchStrategy[Tree] = st.one_of(_names, _names, _numbers, _minus_numbers)
_values: st.SearchStrategy[Tree] = st.one_of(_orderables, _strings, _truths)
_plain_conditions: st.SearchStrategy[Tree] = st.one_of(
    st.builds(Compare, _order_signs, _names, _numbers),
    st.builds(Compare, _order_signs, _orderables, _orderables),
    st.builds(Compare, _equality_signs, _names, _values),
    st.builds(Compare, _equality_signs, _values, _values),
    st.builds(NullTest, _values, st.booleans()),
    st.builds(Range, _names, _orderables, _orderables, st.booleans()),
    st.builds(PartTest, _part_words, _values, _parts, st.booleans()),
    st.builds(Listed, _names, _entries, st.booleans()),
    _names,
    _truths,
)


def _over_conditions(inner: st.SearchStrategy[Tree]) -> st.SearchStrategy[Tree]:
    operands = st.lists(inner, min_size=2, max_size=4).map(tuple)
    return st.one_of(
        st.builds(Chain, st.sampled_from(("AND", "OR")), operands),
        st.builds(Chain, st.sampled_from(("AND", "OR")), operands),
        st.builds(Prefix, st.just("NOT"), inner),
        st.builds(Parentheses, inner),
        st.builds(NullTest, inner, st.booleans()),
        st.builds(Compare, _equality_signs, inner, inner),
        st.builds(Compare, _equality_signs, _names, inner),
        st.builds(Range, st.builds(Prefix, st.just("-"), inner), _orderables, _orderables, st.booleans()),
        st.builds(PartTest, _part_words, inner, _parts, st.booleans()),
    )


def _over_anything(inner: st.SearchStrategy[Tree]) -> st.SearchStrategy[Tree]:
    operands = st.lists(inner, min_size=2, max_size=3).map(tuple)
    return st.one_of(
        st.builds(Chain, st.sampled_from(("AND", "OR")), operands),
        st.builds(Prefix, st.sampled_from(("+", "-", "NOT")), inner),
        st.builds(Parentheses, inner),
        st.builds(NullTest, inner, st.booleans()),
        st.builds(Compare, st.one_of(_equality_signs, _order_signs), inner, inner),
        st.builds(Range, inner, inner, inner, st.booleans()),
        st.builds(PartTest, _part_words, inner, _parts, st.booleans()),
        st.builds(Listed, inner, _entries, st.booleans()),
    )


conditions: st.SearchStrategy[Tree] = st.recursive(_plain_conditions, _over_conditions, max_leaves=8)
"""Trees that mostly compile."""
anything: st.SearchStrategy[Tree] = st.recursive(_values, _over_anything, max_leaves=8)
"""Trees of any shape that the grammar has; many do not compile."""
trees: st.SearchStrategy[Tree] = st.one_of(conditions, conditions, anything)
property_maps: st.SearchStrategy[dict[str, str]] = st.dictionaries(st.sampled_from(NAMES), _texts)
