"""The error of a test that reached a step too late for the times that it had chosen."""

from __future__ import annotations


class TooSlowError(Exception):
    """What was to wait until the second broker serves is due before: try again with longer times."""
