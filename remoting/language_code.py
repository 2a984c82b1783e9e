"""The language that a client or broker says it is written in: a name in the JSON header, a byte in the binary one.

Names and numbers that are not listed count as OTHER. Source: LanguageCode.java, Apache RocketMQ 5.3.
"""

from __future__ import annotations

from enum import IntEnum


class LanguageCode(IntEnum):
    """Implementation language of the peer."""

    JAVA = 0
    CPP = 1
    DOTNET = 2
    PYTHON = 3
    DELPHI = 4
    ERLANG = 5
    RUBY = 6
    OTHER = 7
    HTTP = 8
    GO = 9
    PHP = 10
    OMS = 11
    RUST = 12
    NODE_JS = 13


LANGUAGE_BY_NAME: dict[str, LanguageCode] = {language.name: language for language in LanguageCode}
LANGUAGE_BY_NUMBER: dict[int, LanguageCode] = {language.value: language for language in LanguageCode}
