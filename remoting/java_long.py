"""The range of Java's `long`, which bounds the numbers of the protocol and of settings. Source: java.lang.Long."""

from __future__ import annotations

LONG_MIN, LONG_MAX = -(1 << 63), (1 << 63) - 1
