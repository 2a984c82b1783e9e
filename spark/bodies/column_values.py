"""Column values: decoded bodies (dicts of Python values) into Arrow columns, a column at a time.

A column whose values are all of its own kind is made by one Arrow call; only one that holds something else is looked at
value by value. What does not fit its type becomes null and marks its body as bad, and the rest of the body stays; an
array or map with an element that does not fit is null as a whole. So does Spark's `from_json` in its PERMISSIVE mode.
What fits which type is asked of a set of rules, one for each format.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
import pyarrow as pa


class MisfitError(Exception):
    """A value does not fit its column; the text says why."""


class ValueRules(Protocol):
    """What values of a format fit an Arrow type."""

    def exact_kinds(self, kind: pa.DataType) -> frozenset[type] | None:
        """Python types whose values Arrow takes as they are, without a look at each; None: of any type."""

    def convert(self, value: Any, kind: pa.DataType) -> Any:
        """One value that is not None as Arrow takes it; MisfitError when it does not fit."""


class SchemaRules:
    """Rules of the formats that are decoded by a schema: values are of their types already."""

    def exact_kinds(self, kind: pa.DataType) -> None:
        """See `ValueRules`: of any type."""

    def convert(self, value: Any, kind: pa.DataType) -> Any:
        """See `ValueRules`."""
        if isinstance(value, (dict, list)):
            raise MisfitError("of another type")
        return value


class BadBodies:
    """Which bodies are bad, and the first reason of each."""

    def __init__(self, count: int) -> None:
        self.reasons: list[str | None] = [None] * count

    def mark(self, body: int, reason: str) -> None:
        """A body is bad."""
        if self.reasons[body] is None:
            self.reasons[body] = reason


def column_of(
    values: Sequence[Any], kind: pa.DataType, rules: ValueRules, bad: BadBodies, *, owners: np.ndarray, name: str
) -> pa.Array:
    """The values as one Arrow column. `owners[i]`: which body value i comes from; `name`: its path, for reasons."""
    if pa.types.is_struct(kind):
        return _struct(values, kind, rules, bad, owners=owners, name=name)
    if pa.types.is_list(kind):
        return _list(values, kind, rules, bad, owners=owners, name=name)
    if pa.types.is_map(kind):
        return _map(values, kind, rules, bad, owners=owners, name=name)
    exact = rules.exact_kinds(kind)
    if exact is None or set(map(type, values)) - {type(None)} <= exact:
        try:
            return pa.array(values, kind)
        except (pa.ArrowException, OverflowError, UnicodeEncodeError, ValueError, TypeError):
            pass  # one that is out of range: found below

    def convert(value: Any) -> Any:
        converted = rules.convert(value, kind)
        try:
            pa.scalar(converted, kind)
        except (pa.ArrowException, OverflowError, UnicodeEncodeError, ValueError, TypeError) as error:
            raise MisfitError("out of range") from error
        return converted

    return pa.array(_each(values, convert, bad, owners=owners, name=name, kind=kind), kind)


def _each(
    values: Sequence[Any],
    convert: Callable[[Any], Any],
    bad: BadBodies,
    *,
    owners: np.ndarray,
    name: str,
    kind: pa.DataType,
) -> list[Any]:
    converted: list[Any] = []
    for place, value in enumerate(values):
        if value is None:
            converted.append(None)
            continue
        try:
            converted.append(convert(value))
        except MisfitError as error:
            bad.mark(int(owners[place]), f"{name or 'the body'} is no {_simple_name(kind)}: {error}")
            converted.append(None)
    return converted


def _of_kind(wanted: type | tuple[type, ...]) -> Callable[[Any], Any]:
    def check(value: Any) -> Any:
        if not isinstance(value, wanted):
            raise MisfitError(f"found {_found(value)}")
        return value

    return check


def _struct(
    values: Sequence[Any], kind: pa.StructType, rules: ValueRules, bad: BadBodies, *, owners: np.ndarray, name: str
) -> pa.Array:
    if not set(map(type, values)) <= {dict, type(None)}:
        values = _each(values, _of_kind(dict), bad, owners=owners, name=name, kind=kind)
    nothing: dict[str, Any] = {}
    mask = pa.array([value is None for value in values], pa.bool_())
    children = []
    for field in kind:
        found = [(nothing if value is None else value).get(field.name) for value in values]
        path = f"{name}.{field.name}" if name else field.name
        children.append(column_of(found, field.type, rules, bad, owners=owners, name=path))
    if not children:
        return pa.array(values, kind)
    return pa.StructArray.from_arrays(children, fields=list(kind), mask=mask)


def _list(
    values: Sequence[Any], kind: pa.ListType, rules: ValueRules, bad: BadBodies, *, owners: np.ndarray, name: str
) -> pa.Array:
    if not set(map(type, values)) <= {list, type(None)}:
        values = _each(values, _of_kind(list), bad, owners=owners, name=name, kind=kind)
    lengths = _lengths(values)
    flat = [element for value in values if value is not None for element in value]
    elements = column_of(flat, kind.value_type, rules, bad, owners=np.repeat(owners, lengths), name=f"{name}[]")
    whole = _without_misfits(values, flat, elements, lengths)
    if whole is not None:
        return _list(whole, kind, rules, bad, owners=owners, name=name)
    return pa.ListArray.from_arrays(_offsets(values, lengths), elements, type=kind)


def _map(
    values: Sequence[Any], kind: pa.MapType, rules: ValueRules, bad: BadBodies, *, owners: np.ndarray, name: str
) -> pa.Array:
    if not set(map(type, values)) <= {dict, type(None)}:
        values = _each(values, _of_kind(dict), bad, owners=owners, name=name, kind=kind)
    lengths = _lengths(values)
    flat_owners = np.repeat(owners, lengths)
    flat_keys = [key for value in values if value is not None for key in value]
    flat_values = [one for value in values if value is not None for one in value.values()]
    keys = column_of(flat_keys, kind.key_type, rules, bad, owners=flat_owners, name=f"{name}.keys")
    items = column_of(flat_values, kind.item_type, rules, bad, owners=flat_owners, name=f"{name}{{}}")
    whole = _without_misfits(values, flat_values, items, lengths)
    if whole is not None:
        return _map(whole, kind, rules, bad, owners=owners, name=name)
    return pa.MapArray.from_arrays(_offsets(values, lengths), keys, items, type=kind)


def _lengths(values: Sequence[Any]) -> np.ndarray:
    return np.fromiter((0 if value is None else len(value) for value in values), np.int64, len(values))


def _without_misfits(
    values: Sequence[Any], flat: Sequence[Any], elements: pa.Array, lengths: np.ndarray
) -> list[Any] | None:
    """The arrays or maps, null where an element did not fit: one with a hole would lie. None when all fit."""
    if elements.null_count == 0:
        return None
    nulls: list[int] = np.flatnonzero(elements.is_null().to_numpy(zero_copy_only=False)).tolist()
    lost = [place for place in nulls if flat[place] is not None]
    if not lost:
        return None
    holed = set(np.repeat(np.arange(len(values)), lengths)[lost].tolist())
    return [None if place in holed else value for place, value in enumerate(values)]


def _offsets(values: Sequence[Any], lengths: np.ndarray) -> pa.Array:
    """Offsets of lists or maps; a null offset makes the element null, as Arrow's constructors have it."""
    offsets = np.zeros(len(values) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    nulls = np.fromiter((value is None for value in values), np.bool_, len(values))
    return pa.array(offsets, pa.int32(), mask=np.append(nulls, False))


def _simple_name(kind: pa.DataType) -> str:
    if pa.types.is_struct(kind):
        return "struct"
    if pa.types.is_list(kind):
        return "array"
    return "map" if pa.types.is_map(kind) else str(kind)


def _found(value: Any) -> str:
    try:
        text = repr(value)
    except RecursionError:  # arrays in arrays in arrays
        text = f"a {type(value).__name__}"
    return text if len(text) <= 40 else f"{text[:37]}..."
