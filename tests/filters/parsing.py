"""An expression parsed without a rest."""

from thermocline.filters.expression_limits import DEFAULT_LIMITS, ExpressionLimits
from thermocline.filters.expression_parser import Parsed, parse_steps
from thermocline.filters.steps import run_steps


def parse_expression(text: str, *, limits: ExpressionLimits = DEFAULT_LIMITS) -> Parsed:
    """The tree of `text`; raises as `parse_steps`."""
    return run_steps(parse_steps(text, limits=limits))
