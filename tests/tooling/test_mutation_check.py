"""Mutations are single changes that still parse, and leave out what is not to be mutated."""

from __future__ import annotations

import ast

from tooling.mutation_check import ROOT, choose, mutations_of, near_tests

SOURCE = '''
LIMIT = 7


def first(values: list[int], end: int = 3) -> int:
    """The first below 5."""
    assert end < 9
    logger.info("looking count=%d", 1)
    for value in values:
        if value < end and not value == 2:
            return value + 1
    note(values)
    return -1
'''


def changed_lines(source: str) -> set[str]:
    return {each.apply(source).splitlines()[each.line - 1].strip() for each in mutations_of("a.py", source)}


def test_operators_literals_and_calls_are_changed_one_at_a_time() -> None:
    assert changed_lines(SOURCE) == {
        "if value <= end and not value == 2:",
        "if value < end or not value == 2:",
        "if value < end and value == 2:",
        "if value < end and not value != 2:",
        "if value < end and not value == 3:",
        "return value - 1",
        "return value + 2",
        "pass",
        "return -2",
    }


def test_chosen_mutations_depend_on_the_seed_and_parse() -> None:
    chosen = choose(ROOT, 3, 30, ["timers", "pop"])
    assert chosen == choose(ROOT, 3, 30, ["timers", "pop"]) != choose(ROOT, 4, 30, ["timers", "pop"])
    for mutation in chosen:
        source = (ROOT / mutation.path).read_text()
        changed = mutation.apply(source)
        ast.parse(changed)
        assert sum(a != b for a, b in zip(source.splitlines(), changed.splitlines(), strict=True)) == 1


def test_tests_named_after_the_module_are_near() -> None:
    assert near_tests(ROOT, "store/log/commit_log.py")[0] == "tests/store/log/test_commit_log.py"
