"""Filters on message properties: RocketMQ's SQL92 expressions, compiled once and asked about each message."""

from thermocline.filters.compiled_filter import CompiledFilter, compile_expression
from thermocline.filters.compiled_filter_cache import CompiledFilterCache
from thermocline.filters.expression_error import ExpressionError, ExpressionTooLargeError
from thermocline.filters.expression_limits import DEFAULT_LIMITS, ExpressionLimits
from thermocline.filters.java_numbers import EvaluationError
from thermocline.filters.steps import Steps

__all__ = [
    "DEFAULT_LIMITS",
    "CompiledFilter",
    "CompiledFilterCache",
    "EvaluationError",
    "ExpressionError",
    "ExpressionLimits",
    "ExpressionTooLargeError",
    "Steps",
    "compile_expression",
]
