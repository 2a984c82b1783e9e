"""The cache gives what compiling gives, and keeps to its bound."""

from __future__ import annotations

import pytest

from thermocline.filters import CompiledFilterCache, ExpressionError, ExpressionLimits, ExpressionTooLargeError


def test_a_text_is_compiled_once() -> None:
    cache = CompiledFilterCache()
    assert cache.compile("a = 1") is cache.compile("a = 1")
    assert cache.compile("a = 1") is not cache.compile("a =  1")
    assert len(cache) == 2


def test_the_least_recently_used_filter_is_evicted() -> None:
    cache = CompiledFilterCache(count_max=2)
    first, second = cache.compile("a = 1"), cache.compile("a = 2")
    assert cache.compile("a = 1") is first
    cache.compile("a = 3")
    assert len(cache) == 2
    assert cache.compile("a = 1") is first
    assert cache.compile("a = 2") is not second


def test_an_error_is_remembered_and_raised_anew() -> None:
    cache = CompiledFilterCache()
    caught = []
    for _ in range(2):
        with pytest.raises(ExpressionError, match="not complete") as info:
            cache.compile("a =")
        caught.append(info.value)
    assert caught[0] is not caught[1]
    assert caught[0].position == caught[1].position == 3
    assert len(cache) == 1


def test_a_text_beyond_the_limit_is_not_kept() -> None:
    cache = CompiledFilterCache(limits=ExpressionLimits(expression_chars_max=10))
    for ask in (cache.compile, cache.find):
        with pytest.raises(ExpressionTooLargeError):
            ask("a = 1234567")
    assert len(cache) == 0


def test_characters_are_bounded_too() -> None:
    cache = CompiledFilterCache(count_max=100, chars_max=30, limits=ExpressionLimits(expression_chars_max=15))
    first = cache.compile("a = 1234567890")
    cache.compile("b = 1234567890")
    assert cache.find("a = 1234567890") is first
    cache.compile("c = 1234567890")
    assert len(cache) == 2
    assert cache.find("a = 1234567890") is first
    assert cache.find("b = 1234567890") is None


def test_finding_compiles_nothing() -> None:
    cache = CompiledFilterCache()
    assert cache.find("a = 1") is None
    assert len(cache) == 0
    with pytest.raises(ExpressionError):
        cache.compile("a =")
    with pytest.raises(ExpressionError, match="not complete"):
        cache.find("a =")
