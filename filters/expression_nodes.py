"""The nodes of a parsed expression.

    operand     Property, Constant, Negate, or any condition
    condition   IsTrue, IsNull, Equal, Ordered, Between, TextTest, OneOf, Not, AllOf, AnyOf,
                and the constants TRUE, FALSE and NULL

Nodes are built bottom-up by the functions at the end, which hold the rules about allowed combinations. They are
RocketMQ's rules: odd as some are, an expression means the same on both brokers. `position` is where a node begins
in the text, for errors about it. `depth` and `term_count` bound what is done with a tree later.
Source: ComparisonExpression.java, UnaryExpression.java, LogicExpression.java, ConstantExpression.java
in filter/expression, Apache RocketMQ 5.5.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from thermocline.filters.expression_error import ExpressionError
from thermocline.filters.java_numbers import INTEGER_MAX
from thermocline.remoting.java_long import LONG_MAX


class ValueKind(Enum):
    """The Java type that a value has; which conversion a comparison makes follows from the kinds alone."""

    NULL = "NULL"
    BOOLEAN = "a truth value"
    INTEGER = "a 32-bit number"
    LONG = "a 64-bit number"
    DOUBLE = "a floating point number"
    STRING = "a string"


CONTAINS_TERMS = 16
"""For how many terms a CONTAINS counts: it may look for its part at every place of a long value."""

NUMBERS = frozenset({ValueKind.INTEGER, ValueKind.LONG, ValueKind.DOUBLE})


class OrderOperator(Enum):
    """The comparisons that want numbers."""

    GREATER = ">"
    GREATER_OR_EQUAL = ">="
    LESS = "<"
    LESS_OR_EQUAL = "<="


class TextOperator(Enum):
    """The tests of a string against a part of one."""

    CONTAINS = "CONTAINS"
    STARTS_WITH = "STARTSWITH"
    ENDS_WITH = "ENDSWITH"


@dataclass(frozen=True, slots=True)
class Node:
    """Base of all nodes."""

    position: int
    depth: int
    term_count: int


@dataclass(frozen=True, slots=True)
class Property(Node):
    """The value of a message property: a string, or null when the message has none of this name."""

    name: str


@dataclass(frozen=True, slots=True)
class Constant(Node):
    """A literal."""

    kind: ValueKind
    value: str | int | float | bool | None


@dataclass(frozen=True, slots=True)
class Negate(Node):
    """Minus. Of anything but a number literal it is null: a property is a string, whatever it looks like."""

    operand: Node


@dataclass(frozen=True, slots=True)
class Condition(Node):
    """A node that is true, false or null."""


@dataclass(frozen=True, slots=True)
class IsTrue(Condition):
    """A property where a condition is wanted: null without the property, else false, for a string is no Boolean."""

    operand: Property


@dataclass(frozen=True, slots=True)
class IsNull(Condition):
    """`IS NULL`."""

    operand: Node


@dataclass(frozen=True, slots=True)
class Equal(Condition):
    """`=`."""

    left: Node
    right: Node


@dataclass(frozen=True, slots=True)
class Ordered(Condition):
    """`<`, `<=`, `>` or `>=`."""

    operator: OrderOperator
    left: Node
    right: Node


@dataclass(frozen=True, slots=True)
class Between(Condition):
    """`BETWEEN low AND high`, or its opposite; both ends belong to it."""

    value: Node
    low: Node
    high: Node
    negated: bool


@dataclass(frozen=True, slots=True)
class TextTest(Condition):
    """`CONTAINS`, `STARTSWITH`, `ENDSWITH`, or their opposites."""

    operator: TextOperator
    operand: Node
    part: str
    negated: bool


@dataclass(frozen=True, slots=True)
class OneOf(Condition):
    """`IN` or `NOT IN` a list of strings."""

    operand: Property
    entries: frozenset[str]
    negated: bool


@dataclass(frozen=True, slots=True)
class Not(Condition):
    """`NOT`."""

    operand: ConditionNode


@dataclass(frozen=True, slots=True)
class AllOf(Condition):
    """Conditions joined by `AND`, in the order in which they are looked at."""

    operands: tuple[ConditionNode, ...]


@dataclass(frozen=True, slots=True)
class AnyOf(Condition):
    """Conditions joined by `OR`, in the order in which they are looked at."""

    operands: tuple[ConditionNode, ...]


ConditionNode: TypeAlias = Condition | Constant
"""Where a condition is wanted; a Constant is TRUE, FALSE or NULL there."""


# -- allowed combinations ------------------------------------------------------------------------------------------


def property_value(name: str, position: int) -> Property:
    """A name."""
    return Property(position, 0, 1, name)


def string(value: str, position: int) -> Constant:
    """A string literal, without its quotes."""
    return Constant(position, 0, 1, ValueKind.STRING, value)


def truth(value: bool | None, position: int) -> Constant:
    """TRUE, FALSE or NULL."""
    return Constant(position, 0, 1, ValueKind.NULL if value is None else ValueKind.BOOLEAN, value)


def whole_number(digits: str, position: int) -> Constant:
    """A number without a point; the L that may follow says nothing: what fits 32 bits is 32 bits wide."""
    digits = digits.rstrip("lL")
    # No zeros can lead, so the length alone says that a number is too large.
    value = int(digits) if len(digits) <= len(str(LONG_MAX)) else LONG_MAX + 1
    if value > LONG_MAX:
        raise ExpressionError("the number does not fit 64 bits", position=position)
    return Constant(position, 0, 1, ValueKind.INTEGER if value <= INTEGER_MAX else ValueKind.LONG, value)


def floating_number(text: str, position: int) -> Constant:
    """A number with a point or an exponent; neither 0 nor what a double can only hold as 0 or Infinity."""
    value = float(text)
    if value == 0.0 or math.isinf(value):
        raise ExpressionError(
            "a floating point number must be in [4.9E-324, 1.7976931348623157E308]", position=position
        )
    return Constant(position, 0, 1, ValueKind.DOUBLE, value)


def negate(operand: Node, position: int) -> Negate:
    """`-` before an operand."""
    return Negate(position, *_measure(operand), operand)


def condition(node: Node) -> ConditionNode:
    """`node` where a condition is wanted."""
    if isinstance(node, Condition) or (isinstance(node, Constant) and _is_truth(node)):
        return node
    if isinstance(node, Property):
        return IsTrue(node.position, *_measure(node), node)
    raise ExpressionError("a condition is wanted here, not a value", position=node.position)


def negation(operand: Node, position: int) -> Not:
    """`NOT` before an operand, and around one for `<>` and `IS NOT NULL`."""
    checked = condition(operand)
    return Not(position, *_measure(checked), checked)


def all_of(operands: Sequence[Node]) -> AllOf:
    """Two or more operands of `AND`."""
    checked = tuple(map(condition, operands))
    return AllOf(checked[0].position, *_measure(*checked), checked)


def any_of(operands: Sequence[Node]) -> AnyOf:
    """Two or more operands of `OR`."""
    checked = tuple(map(condition, operands))
    return AnyOf(checked[0].position, *_measure(*checked), checked)


def is_null(operand: Node) -> IsNull:
    """`operand IS NULL`."""
    return IsNull(operand.position, *_measure(operand), operand)


def equal(left: Node, right: Node) -> Equal:
    """`left = right`."""
    for node in (left, right):
        if isinstance(node, Constant) and node.kind is ValueKind.NULL:
            raise ExpressionError("nothing equals NULL: write IS NULL or IS NOT NULL", position=node.position)
    # The other way round RocketMQ takes it, and it is false.
    if isinstance(left, Constant) and isinstance(right, Constant) and _is_truth(left) and not _is_truth(right):
        raise ExpressionError("TRUE and FALSE can be compared with each other only", position=right.position)
    return Equal(left.position, *_measure(left, right), left, right)


def ordered(operator: OrderOperator, left: Node, right: Node) -> Ordered:
    """`left < right` and its relatives."""
    _check_orderable(left, right)
    return Ordered(left.position, *_measure(left, right), operator, left, right)


def between(value: Node, low: Node, high: Node, *, negated: bool) -> Between:
    """`value [NOT] BETWEEN low AND high`."""
    _check_orderable(value, low, high)
    # Only literals without a sign are looked at, and not under NOT.
    if not negated and isinstance(low, Constant) and isinstance(high, Constant) and _is_above(low, high):
        raise ExpressionError("BETWEEN wants the lower end first", position=low.position)
    return Between(value.position, *_measure(value, low, high), value, low, high, negated)


def text_test(operator: TextOperator, operand: Node, part: str, *, negated: bool) -> TextTest:
    """`operand [NOT] CONTAINS 'part'` and its relatives."""
    depth, term_count = _measure(operand)
    if operator is TextOperator.CONTAINS:
        term_count += CONTAINS_TERMS - 1
    return TextTest(operand.position, depth, term_count, operator, operand, part, negated)


def one_of(operand: Node, entries: Sequence[str], *, negated: bool) -> OneOf:
    """`operand [NOT] IN ('entry', ...)`."""
    if not isinstance(operand, Property):
        raise ExpressionError("IN wants a property on its left", position=operand.position)
    return OneOf(operand.position, *_measure(operand), operand, frozenset(entries), negated)


def _measure(*operands: Node) -> tuple[int, int]:
    """Depth and term count of a node over `operands`."""
    return 1 + max([node.depth for node in operands]), 1 + sum([node.term_count for node in operands])


def _is_truth(node: Constant) -> bool:
    return node.kind in (ValueKind.BOOLEAN, ValueKind.NULL)


def _is_above(low: Constant, high: Constant) -> bool:
    assert isinstance(low.value, (int, float))
    assert isinstance(high.value, (int, float))
    if ValueKind.DOUBLE in (low.kind, high.kind):
        return float(low.value) > float(high.value)
    return low.value > high.value


def _check_orderable(*nodes: Node) -> None:
    """Numbers, properties, and whatever has a minus before it."""
    for node in nodes:
        if isinstance(node, Constant) and node.kind not in NUMBERS:
            raise ExpressionError(
                f"a number or a property is wanted here, not {node.kind.value}", position=node.position
            )
        if isinstance(node, Condition):
            raise ExpressionError("a number or a property is wanted here, not a condition", position=node.position)
