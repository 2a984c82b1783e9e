"""From an expression's text to its tree.

Tokens
  - Keywords in any case; names `[A-Za-z_$][A-Za-z0-9_$]*`, whose case counts.
  - Whole numbers `0` or without leading zeros, an L may follow; floating point as `5.`, `.5`, `5E10`, `5.5e-3`.
  - Strings in single quotes, two of them for one inside.
  - Blank, tab, line feed, carriage return and form feed between tokens; comments `/* */` and `-- to the end of a line`,
    the latter only with a line end behind it.
Precedence, loosest first
  OR; AND; `=` `<>` `IS [NOT] NULL`; `<` `<=` `>` `>=` `[NOT] BETWEEN` `[NOT] IN` `[NOT] CONTAINS` ...; `+` `-` `NOT`.
  All take their left operand from the left; so `NOT a = 1` is `(NOT a) = 1`.
The end
  - A complete expression ends at the first token that cannot continue it, and what follows is not looked at: RocketMQ's
    parser never asks for the end of the text. `Parsed.ignored_position` says where that begins.
Bounds: no call goes deeper for a deeper expression; every step looks at one token; see `ExpressionLimits`.
Source: filter/parser/SelectorParser.jj, Apache RocketMQ 5.5.
"""

from __future__ import annotations

import re
from functools import cache

import msgspec
from lark import Lark, Token, Transformer, v_args
from lark.exceptions import UnexpectedCharacters, UnexpectedToken

from thermocline.filters import expression_nodes as nodes
from thermocline.filters.expression_error import ExpressionError, ExpressionTooLargeError
from thermocline.filters.expression_limits import DEFAULT_LIMITS, ExpressionLimits
from thermocline.filters.expression_nodes import ConditionNode, Node, OrderOperator, TextOperator
from thermocline.filters.steps import Steps

_KEYWORDS = {
    "AND": "_AND",
    "OR": "_OR",
    "BETWEEN": "_BETWEEN",
    "IN": "_IN",
    "IS": "_IS",
    "NOT": "NOT",
    "TRUE": "TRUE",
    "FALSE": "FALSE",
    "NULL": "NULL",
    "CONTAINS": "TEXT_OPERATOR",
    "STARTSWITH": "TEXT_OPERATOR",
    "ENDSWITH": "TEXT_OPERATOR",
}

_GRAMMAR = r"""
    start: any_of

    ?any_of: all_of
        | all_of (_OR all_of)+ -> disjunction
    ?all_of: equality
        | equality (_AND equality)+ -> conjunction
    ?equality: comparison
        | equality "=" comparison -> equal
        | equality "<>" comparison -> not_equal
        | equality _IS NULL -> is_null
        | equality _IS NOT NULL -> is_not_null
    ?comparison: unary
        | comparison ORDER_OPERATOR unary -> ordered
        | comparison _BETWEEN unary _AND unary -> between
        | comparison NOT _BETWEEN unary _AND unary -> not_between
        | comparison TEXT_OPERATOR STRING -> text_test
        | comparison NOT TEXT_OPERATOR STRING -> not_text_test
        | comparison _IN strings -> one_of
        | comparison NOT _IN strings -> not_one_of
    strings: "(" STRING ("," STRING)* ")"
    ?unary: primary
        | "+" unary
        | MINUS unary -> negate
        | NOT unary -> negation
    ?primary: "(" any_of ")"
        | NAME -> property_value
        | STRING -> string
        | WHOLE_NUMBER -> whole_number
        | FLOATING_NUMBER -> floating_number
        | TRUE -> true
        | FALSE -> false
        | NULL -> null

    %declare _AND _OR _BETWEEN _IN _IS NOT TRUE FALSE NULL TEXT_OPERATOR

    NAME: /[A-Za-z_$][A-Za-z0-9_$]*/
    STRING: /'[^']*+(?:''[^']*+)*'/
    FLOATING_NUMBER.2: /[0-9]+\.[0-9]*(?:[eE][+-]?[0-9]+)?|\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+/
    WHOLE_NUMBER: /0|[1-9][0-9]*[lL]?/
    ORDER_OPERATOR: /<=|>=|<(?!>)|>/
    MINUS: "-"

    SPACE: /[ \t\n\r\f]+/
    LINE_COMMENT.2: /--[^\n\r]*+(?:\r\n|\n|\r)/
    BLOCK_COMMENT: /\/\*(?s:.)*?\*\//
    %ignore SPACE
    %ignore LINE_COMMENT
    %ignore BLOCK_COMMENT
"""


_END = Token("$END", "")
# By the grammar two signs, and so behind an expression the begin of what is not looked at; to people it is a comment.
_COMMENT_WITHOUT_END = re.compile(r"--[^\n\r]*\Z")


class Parsed(msgspec.Struct, frozen=True, kw_only=True):
    """The result of parsing a text."""

    root: ConditionNode
    property_names: frozenset[str]
    ignored_position: int | None
    """Where the text begins that is no part of the expression; None when all of it is."""


def parse_steps(text: str, *, limits: ExpressionLimits = DEFAULT_LIMITS) -> Steps[Parsed]:
    """Return the tree of `text`, with a rest after every token.

    Raises:
        ExpressionTooLargeError: It is beyond one of the limits.
        ExpressionError: It is no expression.
    """
    _check(len(text), limits.expression_chars_max, "characters", limits.expression_chars_max)
    parser = _parser().parse_interactive(text)
    bounds = _TokenBounds(limits)
    token: Token | None = None
    names: list[str] = []
    ignored_position: int | None = None
    try:
        for token in parser.iter_parse():  # fed to the parser when the next token is requested
            bounds.check(token)
            if token.type == "NAME":
                names.append(str(token))
            yield
        root = parser.feed_token(_END)
    except UnexpectedCharacters as error:
        position = error.pos_in_stream
        assert position is not None
        raise ExpressionError(_unexpected_character(text, position), position=position) from None
    except UnexpectedToken as error:
        if token is None or error.token is _END:
            raise ExpressionError("the expression is not complete", position=len(text)) from None
        ignored_position = _position(token)
        try:
            root = parser.feed_token(_END)
        except UnexpectedToken:
            raise ExpressionError(f"{_shown(token)} cannot stand here", position=ignored_position) from None
        if token.type == "NAME":
            names.pop()
        if _COMMENT_WITHOUT_END.match(text, ignored_position):
            ignored_position = None
    assert isinstance(root, Node)
    _check(root.depth, limits.nesting_depth_max, "levels", root.position)
    _check(root.term_count, limits.term_count_max, "terms", root.position)
    assert isinstance(root, ConditionNode)
    return Parsed(root=root, property_names=frozenset(names), ignored_position=ignored_position)


class _TokenBounds:
    """Checks limits on the tokens alone, before any node is built."""

    def __init__(self, limits: ExpressionLimits) -> None:
        self._limits = limits
        self._token_count = 0
        self._open_count = 0
        self._list_entries = 0

    def check(self, token: Token) -> None:
        """Count `token`; ExpressionTooLargeError when it is one too many."""
        limits, position = self._limits, _position(token)
        self._token_count += 1
        _check(self._token_count, limits.token_count_max, "tokens", position)
        match token.type:
            case "LPAR":
                self._open_count += 1
                _check(self._open_count, limits.nesting_depth_max, "levels", position)
                self._list_entries = 1
            case "RPAR":
                self._open_count -= 1
            case "COMMA":
                self._list_entries += 1
                _check(self._list_entries, limits.list_entries_max, "strings in a list", position)
            case "STRING":
                _check(len(token), limits.string_chars_max, "characters in a string", position)


def _check(count: int, count_max: int, what: str, position: int) -> None:
    if count > count_max:
        raise ExpressionTooLargeError(f"more than {count_max} {what}", position=position)


@v_args(inline=True)
class _TreeBuilder(Transformer[Token, Node]):
    """One method for each alternative of the grammar that has a name there."""

    def start(self, root: Node) -> ConditionNode:
        return nodes.condition(root)

    def disjunction(self, *operands: Node) -> Node:
        return nodes.any_of(operands)

    def conjunction(self, *operands: Node) -> Node:
        return nodes.all_of(operands)

    def equal(self, left: Node, right: Node) -> Node:
        return nodes.equal(left, right)

    def not_equal(self, left: Node, right: Node) -> Node:
        return nodes.negation(nodes.equal(left, right), left.position)

    def is_null(self, operand: Node, _null: Token) -> Node:
        return nodes.is_null(operand)

    def is_not_null(self, operand: Node, _not: Token, _null: Token) -> Node:
        return nodes.negation(nodes.is_null(operand), operand.position)

    def ordered(self, left: Node, operator: Token, right: Node) -> Node:
        return nodes.ordered(OrderOperator(operator), left, right)

    def between(self, value: Node, low: Node, high: Node) -> Node:
        return nodes.between(value, low, high, negated=False)

    def not_between(self, value: Node, _not: Token, low: Node, high: Node) -> Node:
        return nodes.between(value, low, high, negated=True)

    def text_test(self, operand: Node, operator: Token, part: Token) -> Node:
        return nodes.text_test(TextOperator(operator.upper()), operand, _unquote(part), negated=False)

    def not_text_test(self, operand: Node, _not: Token, operator: Token, part: Token) -> Node:
        return nodes.text_test(TextOperator(operator.upper()), operand, _unquote(part), negated=True)

    def one_of(self, operand: Node, entries: list[str]) -> Node:
        return nodes.one_of(operand, entries, negated=False)

    def not_one_of(self, operand: Node, _not: Token, entries: list[str]) -> Node:
        return nodes.one_of(operand, entries, negated=True)

    def strings(self, *entries: Token) -> list[str]:
        return [_unquote(entry) for entry in entries]

    def negate(self, minus: Token, operand: Node) -> Node:
        return nodes.negate(operand, _position(minus))

    def negation(self, keyword: Token, operand: Node) -> Node:
        return nodes.negation(operand, _position(keyword))

    def property_value(self, name: Token) -> Node:
        return nodes.property_value(str(name), _position(name))

    def string(self, literal: Token) -> Node:
        return nodes.string(_unquote(literal), _position(literal))

    def whole_number(self, literal: Token) -> Node:
        return nodes.whole_number(str(literal), _position(literal))

    def floating_number(self, literal: Token) -> Node:
        return nodes.floating_number(str(literal), _position(literal))

    def true(self, literal: Token) -> Node:
        return nodes.truth(True, _position(literal))

    def false(self, literal: Token) -> Node:
        return nodes.truth(False, _position(literal))

    def null(self, literal: Token) -> Node:
        return nodes.truth(None, _position(literal))


@cache
def _parser() -> Lark:
    """The tables are made when the first expression comes: most brokers never see one."""
    return Lark(
        _GRAMMAR,
        parser="lalr",
        lexer="basic",
        transformer=_TreeBuilder(),
        lexer_callbacks={"NAME": _keyword},
        g_regex_flags=re.ASCII,
    )


def _keyword(token: Token) -> Token:
    """A name that is a keyword becomes one."""
    keyword = _KEYWORDS.get(token.upper())
    if keyword is not None:
        token.type = keyword
    return token


def _unquote(literal: Token) -> str:
    return literal[1:-1].replace("''", "'")


def _position(token: Token) -> int:
    assert token.start_pos is not None
    return token.start_pos


_SHOWN_CHARS_MAX = 32


def _shown(token: Token) -> str:
    return token if len(token) <= _SHOWN_CHARS_MAX else f"{token[:_SHOWN_CHARS_MAX]}..."


def _unexpected_character(text: str, position: int) -> str:
    if text[position] == "'":
        return "the string has no end"
    if text.startswith("/*", position):
        return "the comment has no end"
    return f"no token begins with {text[position]!a}"
