"""Codes and their names."""

from tests.remoting.recorded_rows import COMMANDS
from thermocline.remoting.language_code import LANGUAGE_BY_NAME, LanguageCode
from thermocline.remoting.request_code import RequestCode, request_name
from thermocline.remoting.response_code import ResponseCode


def test_recorded_names() -> None:
    for row in COMMANDS:
        if row["kind"] == "response":
            assert row["code"] in set(ResponseCode)
        elif "name" in row:
            assert RequestCode(row["code"]).name == row["name"]


def test_names_of_unknown_codes() -> None:
    assert request_name(310) == "SEND_MESSAGE_V2"
    assert request_name(-5) == "-5"


def test_languages() -> None:
    assert LANGUAGE_BY_NAME["PYTHON"] is LanguageCode.PYTHON
    assert [language.value for language in LanguageCode] == list(range(14))
