"""Maps the errors of a check of stored bytes to the problems that findings name."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from thermocline.remoting.errors import CorruptDataError, ObjectNotFoundError, SegmentSizeError
from thermocline.tiered.findings import Problem
from thermocline.tiered.objects import FormatTooNewError, SegmentFormatError
from thermocline.tiered.wrappers import SpooledObject


class OtherSegmentError(SegmentFormatError):
    """The bytes are sound, but they are another segment's, pack's or index object's."""


def problem_of(error: CorruptDataError | ObjectNotFoundError) -> tuple[Problem, str]:
    """Return the problem that an error of a check stands for, and its detail in words."""
    if isinstance(error, ObjectNotFoundError):
        return Problem.MISSING, ""
    if isinstance(error, SegmentSizeError):
        return Problem.SIZE, str(error)
    if isinstance(error, OtherSegmentError):
        return Problem.MISPLACED, str(error)
    if isinstance(error, FormatTooNewError):
        return Problem.TOO_NEW, str(error)
    return Problem.DAMAGED, str(error)


async def problem_with(
    spooled: SpooledObject, check: Callable[[SpooledObject], Awaitable[None]]
) -> tuple[Problem, str] | None:
    """Run `check` on an object that was fetched whole; return its problem and the detail, None when it is sound.

    Raises:
        ObjectStoreUnavailableError: The store gives no answer about another object that `check` reads.
    """
    if not spooled.is_there:
        return Problem.MISSING, ""
    try:
        await check(spooled)
    except CorruptDataError as error:
        return problem_of(error)
    return None
