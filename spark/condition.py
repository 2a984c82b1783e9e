"""filters_of: the simple comparisons that a condition of Spark SQL demands, as Spark's own optimizer finds them.

The condition is put on an empty table of the same columns, on the driver. What the optimizer leaves of it is joined by
AND, with constants worked out, casts turned round and negations pushed down. Each part that Spark can say as a filter
of its sources becomes one comparison; the rest (OR, functions, map lookups) is left out, so that more is read.
Classic sessions only.
Source: DataSourceStrategy.translateFilter, Apache Spark 4.2.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from thermocline.spark.reading.pruning_filters import SimpleFilter

if TYPE_CHECKING:
    from py4j.java_gateway import JavaObject
    from pyspark.sql import Column, SparkSession

_WITH_A_VALUE = frozenset(
    {
        *("EqualTo", "EqualNullSafe", "GreaterThan", "GreaterThanOrEqual", "LessThan", "LessThanOrEqual"),
        *("StringStartsWith", "StringEndsWith", "StringContains"),
    }
)
_WITHOUT_A_VALUE = frozenset({"IsNull", "IsNotNull"})


def filters_of(spark: SparkSession, condition: str | Column, schema: str) -> list[SimpleFilter]:
    """The comparisons that all have to hold where `condition` does; `schema` is DDL.

    Raises:
        pyspark.errors.AnalysisException: The condition cannot be resolved over these columns.
    """
    empty = spark.createDataFrame(spark.sparkContext.emptyRDD(), schema)
    plan = empty.where(condition)._jdf.queryExecution().optimizedPlan()
    if plan.nodeName() != "Filter":
        return []
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    # The JVM class of a Scala object has a trailing $.
    strategies = getattr(jvm.org.apache.spark.sql.execution.datasources, "DataSourceStrategy$")
    translate = getattr(strategies, "MODULE$").translateFilter
    found: list[SimpleFilter] = []
    for part in _conjuncts(plan.condition()):
        translated = translate(part, True)
        if translated.isDefined():
            found += _simple(translated.get(), negated=False)
    return found


def _conjuncts(expression: JavaObject) -> Iterator[JavaObject]:
    if expression.nodeName() == "And":
        yield from _conjuncts(expression.left())
        yield from _conjuncts(expression.right())
    else:
        yield expression


def _simple(each: JavaObject, *, negated: bool) -> list[SimpleFilter]:
    """One filter of Spark's sources as comparisons that all hold; none when it is no such thing."""
    name = str(each.getClass().getSimpleName())
    if name == "And" and not negated:
        return _simple(each.left(), negated=False) + _simple(each.right(), negated=False)
    if name == "Not" and not negated:
        return _simple(each.child(), negated=True)
    if name in _WITHOUT_A_VALUE:
        return [SimpleFilter(name, str(each.attribute()), None, negated)]
    if name in _WITH_A_VALUE:
        values = [_plain(each.value())]
    elif name == "In":
        values = [_plain(value) for value in each.values()]
    else:
        return []
    if any(value is _OTHER for value in values):
        return []
    return [SimpleFilter(name, str(each.attribute()), values if name == "In" else values[0], negated)]


_OTHER = object()
"""A value of a type that no column has by which anything is pruned."""


def _plain(value: Any) -> Any:
    """The value in Python; a time as microseconds since 1970."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    match str(value.getClass().getName()):
        case "java.sql.Timestamp":
            # Its milliseconds are whole seconds and thousandths; the nanoseconds hold these once more.
            return int(value.getTime()) // 1_000 * 1_000_000 + int(value.getNanos()) // 1_000
        case "java.time.Instant":
            return int(value.getEpochSecond()) * 1_000_000 + int(value.getNano()) // 1_000
        case _:
            return _OTHER
