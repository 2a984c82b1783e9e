"""The official filter library's answers: recorded ones, and new ones from a JVM.

`official_answers.jsonl`: the first line holds the property sets; every other one an expression with a letter for each
of them: T, F, N for null, E when the evaluation throws; or R alone when the expression does not compile. Recorded from
Apache RocketMQ 5.5.0.
"""

from __future__ import annotations

import base64
import json
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from thermocline.filters import EvaluationError, ExpressionError, compile_expression

_FOLDER = Path(__file__).parent
_PROGRAM = _FOLDER / "java" / "FilterAnswers.java"
_ANSWER_TIMEOUT_S = 120.0
_LETTERS = {True: "T", False: "F", None: "N"}

Question = tuple[str, Sequence[Mapping[str, str]]]
"""An expression, and the properties of the messages to ask it about."""


def recorded() -> tuple[list[dict[str, str]], dict[str, str]]:
    """The property sets, and expression -> letters."""
    first, *lines = (_FOLDER / "official_answers.jsonl").read_text(encoding="utf-8").splitlines()
    return json.loads(first), {row["expression"]: row["answers"] for row in map(json.loads, lines)}


def our_answer(question: Question) -> str:
    """The letters of this project's filter."""
    expression, property_sets = question
    try:
        compiled = compile_expression(expression)
    except ExpressionError:
        return "R"
    letters = []
    for properties in property_sets:
        try:
            letters.append(_LETTERS[compiled.evaluate(properties)])
        except EvaluationError:
            letters.append("E")
    return "".join(letters)


def official_answers(jdk_home: Path, official_jars: Path, questions: Iterable[Question]) -> list[str]:
    """The letters of the official library, all questions to one JVM."""
    lines = [
        " ".join([_word(expression), *[_word(_property_text(properties)) for properties in property_sets]])
        for expression, property_sets in questions
    ]
    finished = subprocess.run(
        [str(jdk_home / "bin" / "java"), "-cp", str(official_jars / "*"), str(_PROGRAM)],
        input="\n".join(lines) + "\n",
        capture_output=True,
        timeout=_ANSWER_TIMEOUT_S,
        encoding="ascii",
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    answers = finished.stdout.splitlines()
    assert len(answers) == len(lines)
    return answers


def _word(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _property_text(properties: Mapping[str, str]) -> str:
    return "".join([f"{name}\x01{value}\x02" for name, value in properties.items()])
