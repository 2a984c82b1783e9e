"""The rule of what is visible."""

from __future__ import annotations

from thermocline.store.config.ttl import visible_from_ms


def test_the_rule() -> None:
    assert visible_from_ms(ttl_ms=None, expired_before_ms=7, now_ms=100) == 7
    assert visible_from_ms(ttl_ms=30, expired_before_ms=7, now_ms=100) == 70
    assert visible_from_ms(ttl_ms=30, expired_before_ms=80, now_ms=100) == 80
