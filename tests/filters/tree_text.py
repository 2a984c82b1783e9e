"""Trees as text, for tests: `(= a 1)`."""

from __future__ import annotations

from thermocline.filters import expression_nodes as nodes
from thermocline.filters.expression_nodes import Node


def tree_text(node: Node, *, with_kinds: bool = False) -> str:
    """The tree in parentheses, the operator first; with the kinds of its constants if wanted."""

    def text(inner: Node) -> str:
        return tree_text(inner, with_kinds=with_kinds)

    def listed(head: str, *parts: str) -> str:
        return f"({' '.join([head, *parts])})"

    match node:
        case nodes.Property(name=name):
            return name
        case nodes.Constant(kind=kind, value=value):
            if kind is nodes.ValueKind.STRING:
                return f"'{value}'"
            if kind is nodes.ValueKind.NULL:
                return "NULL"
            shown = str(value).upper() if kind is nodes.ValueKind.BOOLEAN else str(value)
            return f"{kind.name} {shown}" if with_kinds else shown
        case nodes.Negate(operand=operand):
            return listed("-", text(operand))
        case nodes.IsTrue(operand=operand):
            return listed("true", text(operand))
        case nodes.IsNull(operand=operand):
            return listed("null", text(operand))
        case nodes.Not(operand=operand):
            return listed("not", text(operand))
        case nodes.Equal(left=first, right=second):
            return listed("=", text(first), text(second))
        case nodes.Ordered(operator=operator, left=first, right=second):
            return listed(operator.value, text(first), text(second))
        case nodes.AllOf(operands=operands):
            return listed("and", *map(text, operands))
        case nodes.AnyOf(operands=operands):
            return listed("or", *map(text, operands))
        case nodes.Between(value=operand, low=low, high=high, negated=negated):
            return listed("not-between" if negated else "between", text(operand), text(low), text(high))
        case nodes.TextTest(operator=word, operand=operand, part=part, negated=negated):
            return listed(("not-" if negated else "") + word.value.lower(), text(operand), f"'{part}'")
        case nodes.OneOf(operand=operand, entries=entries, negated=negated):
            return listed("not-in" if negated else "in", text(operand), *[f"'{entry}'" for entry in sorted(entries)])
        case _:
            raise AssertionError(type(node))
