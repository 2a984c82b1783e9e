"""From an expression's tree to a function of a message's properties.

Every node becomes one closure over the closures of its operands; all that can be decided beforehand is: which
conversion a comparison makes follows from the kinds of its operands, and a property against a literal, the usual case,
is a single closure.

Results
  - True, False, or None for null.
  - EvaluationError where RocketMQ throws: a string that is no number of the literal's type, two strings by `<` that
    are no doubles, a condition `=` a string. It ends the whole evaluation; only what AND or OR has already decided on
    its left keeps it from being reached.
Null
  - AND is false if any operand is, else null if any is; OR the same with true. NOT null is null.
  - `<` and its relatives are null when a side is; a null left side keeps the right one from being looked at.
  - `=`: two nulls are equal, null on the left alone gives null, on the right alone false.
  - A test for a part of a string is false for null, and for an empty part, under NOT too. IN and NOT IN are null.
Order: left before right, each operand at most once, so the cost is linear in the number of terms.
Source: ComparisonExpression.java, UnaryExpression.java, LogicExpression.java in filter/expression, Apache RocketMQ 5.5.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import msgspec

from thermocline.filters.expression_nodes import (
    NUMBERS,
    AllOf,
    AnyOf,
    Between,
    Condition,
    ConditionNode,
    Constant,
    Equal,
    IsNull,
    IsTrue,
    Negate,
    Node,
    Not,
    OneOf,
    Ordered,
    OrderOperator,
    Property,
    TextOperator,
    TextTest,
    ValueKind,
)
from thermocline.filters.java_numbers import (
    EvaluationError,
    double_order,
    parse_double,
    parse_double_for_constant,
    parse_integer,
    parse_long,
)

Properties: TypeAlias = Mapping[str, str]
Verdict: TypeAlias = bool | None
Value: TypeAlias = str | int | float | bool | None
EvaluateCondition: TypeAlias = Callable[[Properties], Verdict]
EvaluateValue: TypeAlias = Callable[[Properties], Value]
# Whether two values, neither of them null, compare as wanted; their kinds are known when it is chosen.
Holds: TypeAlias = Callable[[Any, Any], bool]

_PARSE: dict[ValueKind, Callable[[str], int | float]] = {
    ValueKind.INTEGER: parse_integer,
    ValueKind.LONG: parse_long,
    ValueKind.DOUBLE: parse_double_for_constant,
}
_ORDER: dict[OrderOperator, Holds] = {
    OrderOperator.GREATER: operator.gt,
    OrderOperator.GREATER_OR_EQUAL: operator.ge,
    OrderOperator.LESS: operator.lt,
    OrderOperator.LESS_OR_EQUAL: operator.le,
}
# The same comparison with its sides exchanged.
_EXCHANGED: dict[OrderOperator, OrderOperator] = {
    OrderOperator.GREATER: OrderOperator.LESS,
    OrderOperator.GREATER_OR_EQUAL: OrderOperator.LESS_OR_EQUAL,
    OrderOperator.LESS: OrderOperator.GREATER,
    OrderOperator.LESS_OR_EQUAL: OrderOperator.GREATER_OR_EQUAL,
}
_TEXT_TEST: dict[TextOperator, Callable[[str, str], bool]] = {
    TextOperator.CONTAINS: operator.contains,
    TextOperator.STARTS_WITH: str.startswith,
    TextOperator.ENDS_WITH: str.endswith,
}


def compile_condition(node: ConditionNode) -> EvaluateCondition:
    """The function that evaluates `node`; it raises EvaluationError where RocketMQ throws."""
    match node:
        case Constant(value=bool() | None as verdict):
            return lambda _properties: verdict
        case IsTrue(operand=Property(name=name)):
            return lambda properties: None if properties.get(name) is None else False
        case IsNull(operand=Property(name=name)):
            return lambda properties: properties.get(name) is None
        case IsNull(operand=operand):
            evaluate = _operand(operand).evaluate
            return lambda properties: evaluate(properties) is None
        case Not(operand=operand):
            return _negation(compile_condition(operand))
        case AllOf(operands=operands):
            return _all_of([compile_condition(operand) for operand in operands])
        case AnyOf(operands=operands):
            return _any_of([compile_condition(operand) for operand in operands])
        case OneOf(operand=Property(name=name), entries=entries, negated=negated):
            return _one_of(name, entries, negated=negated)
        case TextTest():
            return _text_test(node)
        case Equal(left=left, right=right):
            return _equal(_operand(left), _operand(right))
        case Ordered(operator=order, left=left, right=right):
            return _ordered(order, _operand(left), _operand(right))
        case Between():
            return _between(node)
        case _:
            raise AssertionError(f"{type(node).__name__} is no condition")


# -- operands ------------------------------------------------------------------------------------------------------


class _Operand(msgspec.Struct, frozen=True, kw_only=True):
    """One side of a comparison."""

    kind: ValueKind  # of its values other than null
    evaluate: EvaluateValue
    name: str | None = None  # of the property that it is
    constant: Value = None  # what it always is


def _operand(node: Node) -> _Operand:
    match node:
        case Property(name=name):
            return _Operand(kind=ValueKind.STRING, evaluate=lambda properties: properties.get(name), name=name)
        case Constant(kind=kind, value=value):
            return _Operand(kind=kind, evaluate=lambda _properties: value, constant=value)
        case Negate(operand=operand):
            return _negated(_operand(operand))
        case Condition():
            return _Operand(kind=ValueKind.BOOLEAN, evaluate=compile_condition(node))
        case _:
            raise AssertionError(f"{type(node).__name__} is no operand")


def _negated(operand: _Operand) -> _Operand:
    if operand.kind in NUMBERS:
        # All numbers are literals, and no literal is so small that it has no opposite.
        assert isinstance(operand.constant, int | float)
        number = -operand.constant
        return _Operand(kind=operand.kind, evaluate=lambda _properties: number, constant=number)
    evaluate = operand.evaluate

    def null(properties: Properties) -> None:
        evaluate(properties)  # for the error that may come of it

    return _Operand(kind=ValueKind.NULL, evaluate=null)


# -- AND, OR, NOT --------------------------------------------------------------------------------------------------


def _negation(evaluate: EvaluateCondition) -> EvaluateCondition:
    def negation(properties: Properties) -> Verdict:
        verdict = evaluate(properties)
        return None if verdict is None else not verdict

    return negation


def _all_of(conditions: list[EvaluateCondition]) -> EvaluateCondition:
    def all_of(properties: Properties) -> Verdict:
        verdict: Verdict = True
        for evaluate in conditions:
            term = evaluate(properties)
            if term is None:
                verdict = None
            elif not term:
                return False
        return verdict

    if len(conditions) > 2:
        return all_of
    left, right = conditions

    def both(properties: Properties) -> Verdict:
        verdict = left(properties)
        if verdict:
            return right(properties)
        if verdict is None and right(properties) is not False:
            return None
        return False

    return both


def _any_of(conditions: list[EvaluateCondition]) -> EvaluateCondition:
    def any_of(properties: Properties) -> Verdict:
        verdict: Verdict = False
        for evaluate in conditions:
            term = evaluate(properties)
            if term:
                return True
            if term is None:
                verdict = None
        return verdict

    if len(conditions) > 2:
        return any_of
    left, right = conditions

    def either(properties: Properties) -> Verdict:
        verdict = left(properties)
        if verdict:
            return True
        return right(properties) if verdict is False else right(properties) or None

    return either


# -- strings -------------------------------------------------------------------------------------------------------


def _one_of(name: str, entries: frozenset[str], *, negated: bool) -> EvaluateCondition:
    def one_of(properties: Properties) -> Verdict:
        text = properties.get(name)
        return None if text is None else (text in entries) is not negated

    return one_of


def _text_test(node: TextTest) -> EvaluateCondition:
    part, negated = node.part, node.negated
    if not part:
        return lambda _properties: False
    operand, test = _operand(node.operand), _TEXT_TEST[node.operator]
    evaluate, name = operand.evaluate, operand.name
    if name is not None:

        def property_test(properties: Properties) -> Verdict:
            text = properties.get(name)
            return False if text is None else test(text, part) is not negated

        return property_test

    def value_test(properties: Properties) -> Verdict:
        value = evaluate(properties)
        return isinstance(value, str) and test(value, part) is not negated

    return value_test


# -- equality ------------------------------------------------------------------------------------------------------


def _equal(left: _Operand, right: _Operand) -> EvaluateCondition:
    name, constant = left.name, right.constant
    if name is not None and right.kind in NUMBERS:
        parse = _PARSE[right.kind]

        def equals_number(properties: Properties) -> Verdict:
            text = properties.get(name)
            return None if text is None else parse(text) == constant

        return equals_number
    if name is not None and right.kind is ValueKind.STRING and right.name is None:

        def equals_text(properties: Properties) -> Verdict:
            text = properties.get(name)
            return None if text is None else text == constant

        return equals_text

    evaluate_left, evaluate_right, holds = left.evaluate, right.evaluate, _equality(left.kind, right.kind)

    def equal(properties: Properties) -> Verdict:
        left_value, right_value = evaluate_left(properties), evaluate_right(properties)
        if left_value is None:
            return True if right_value is None else None
        return right_value is not None and holds(left_value, right_value)

    return equal


def _equality(left: ValueKind, right: ValueKind) -> Holds:
    """How values of two kinds are compared by `=`."""
    match left, right:
        case (ValueKind.STRING, ValueKind.STRING) | (ValueKind.BOOLEAN, ValueKind.BOOLEAN):
            return operator.eq
        case ValueKind.STRING, ValueKind.BOOLEAN:
            return lambda text, truth: _is_true_text(text) is truth
        case ValueKind.BOOLEAN, ValueKind.STRING:
            return _incomparable
        case ValueKind.STRING, _ if right in NUMBERS:
            parse = _PARSE[right]
            return lambda text, number: parse(text) == number
        case _, ValueKind.STRING if left in NUMBERS:
            parse = _PARSE[left]
            return lambda number, text: number == parse(text)
        case _ if left in NUMBERS and right in NUMBERS:
            return _widened(operator.eq, left, right)
        case _:
            # A condition and a number; null is compared with nothing.
            return _never


def _is_true_text(text: str) -> bool:
    return len(text) == len("true") and text.lower() == "true"


def _incomparable(_left: object, _right: object) -> bool:
    raise EvaluationError("a condition cannot be compared with a string on its right")


def _never(_left: object, _right: object) -> bool:
    return False


# -- order ---------------------------------------------------------------------------------------------------------


def _ordered(order: OrderOperator, left: _Operand, right: _Operand) -> EvaluateCondition:
    if left.kind in NUMBERS and right.name is not None:
        return _ordered(_EXCHANGED[order], right, left)
    name, constant, holds = left.name, right.constant, _ORDER[order]
    if name is not None and right.kind in NUMBERS:
        parse = _PARSE[right.kind]

        def ordered_to_number(properties: Properties) -> Verdict:
            text = properties.get(name)
            return None if text is None else holds(parse(text), constant)

        return ordered_to_number

    evaluate_left, evaluate_right = left.evaluate, right.evaluate
    if left.kind in NUMBERS and right.kind in NUMBERS:
        holds = _widened(holds, left.kind, right.kind)
    else:
        holds = _as_doubles(holds)

    def ordered(properties: Properties) -> Verdict:
        left_value = evaluate_left(properties)
        if left_value is None:
            return None
        right_value = evaluate_right(properties)
        return None if right_value is None else holds(left_value, right_value)

    return ordered


def _widened(holds: Holds, left: ValueKind, right: ValueKind) -> Holds:
    """`holds` of two numbers, both as doubles when one is."""
    if ValueKind.DOUBLE in (left, right):
        return lambda left_number, right_number: holds(float(left_number), float(right_number))
    return holds


def _as_doubles(holds: Holds) -> Holds:
    """`holds` of two strings, which have to be doubles."""
    return lambda left, right: holds(double_order(parse_double(left)), double_order(parse_double(right)))


def _between(node: Between) -> EvaluateCondition:
    value, low, high = _operand(node.value), _operand(node.low), _operand(node.high)
    name, low_number, high_number, negated = value.name, low.constant, high.constant, node.negated
    if value.kind is ValueKind.NULL:
        # Neither end is looked at, and the value once is enough.
        evaluate = value.evaluate

        def null(properties: Properties) -> None:
            evaluate(properties)

        return null
    if name is not None and low.kind in NUMBERS and low.kind is high.kind:
        parse = _PARSE[low.kind]

        def within_numbers(properties: Properties) -> Verdict:
            text = properties.get(name)
            if text is None:
                return None
            number: Any = parse(text)
            return (low_number <= number <= high_number) is not negated

        return within_numbers
    if negated:
        return _any_of([_ordered(OrderOperator.LESS, value, low), _ordered(OrderOperator.GREATER, value, high)])
    return _all_of(
        [_ordered(OrderOperator.GREATER_OR_EQUAL, value, low), _ordered(OrderOperator.LESS_OR_EQUAL, value, high)]
    )
