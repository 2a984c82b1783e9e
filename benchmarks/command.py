"""The end of a benchmark's module: run its `main`, and say in one sentence when the machine lacks a tool."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import NoReturn

from thermocline.localstack import ToolMissingError


def run_command(main: Callable[[], int]) -> NoReturn:
    """Exit with the status of `main`; 2 when a tool is missing."""
    try:
        sys.exit(main())
    except ToolMissingError as missing:
        print(missing, file=sys.stderr)
        sys.exit(2)
