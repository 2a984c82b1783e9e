"""check_option_names: refuses an unknown option of a read or a write; Spark itself passes any option on."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping

from thermocline.remoting.errors import InvalidRequestError


def known_options(names: Iterable[str]) -> dict[str, str]:
    """The names by lower case, as Spark compares them."""
    return {name.lower(): name for name in names}


def check_option_names(
    options: Iterable[str],
    names: Mapping[str, str],
    *,
    advice: Mapping[str, str],
    is_known_besides: Callable[[str], bool] = lambda _lowered: False,
) -> None:
    """Pass when every option is one of `names` (see `known_options`), or `is_known_besides` accepts it in lower case.

    `advice`: what to do instead of some others, by lower case.

    Raises:
        InvalidRequestError: One is not known; the message names the option that is spelled alike, if there is one.
    """
    for name in options:
        lowered = name.lower()
        if lowered in names or is_known_besides(lowered):
            continue
        alike = difflib.get_close_matches(lowered, names, n=1)
        hint = advice.get(lowered) or (f"is it {names[alike[0]]}?" if alike else "see docs/spark.md")
        raise InvalidRequestError(f"there is no option {name!r}; {hint}", option=name)
