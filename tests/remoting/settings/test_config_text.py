"""Java properties text, as config requests and `broker.conf` carry it."""

import time

import pytest

from thermocline.remoting.errors import InvalidParameterError
from thermocline.remoting.settings.config_text import CHARACTERS_MAX, format_config_text, parse_config_text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("brokerName=broker-a\n", {"brokerName": "broker-a"}),
        ("  brokerName  =  broker-a  \n", {"brokerName": "broker-a  "}),
        ("key:value", {"key": "value"}),
        ("key value with blanks", {"key": "value with blanks"}),
        ("key", {"key": ""}),
        ("key=", {"key": ""}),
        ("url=s3://bucket/prefix?a=b", {"url": "s3://bucket/prefix?a=b"}),
        ("# comment\n! comment\n\n   \nkey=1", {"key": "1"}),
        ("levels=1s \\\n    5s \\\r\n\t10s\nnext=2", {"levels": "1s 5s 10s", "next": "2"}),
        ("path=C\\:\\\\data\\ttab", {"path": "C:\\data\ttab"}),
        ("a\\=b=c", {"a=b": "c"}),
        ("name=gr\\u00fcn", {"name": "grün"}),
        ("key=1\nkey=2", {"key": "2"}),
        ("key=1\\", {"key": "1"}),
        ("a=\\\\\\\n\\\n  b\nc=\\\\\nd=1", {"a": "\\b", "c": "\\", "d": "1"}),
        ("a=1\\\n\nb=2\n\\\n#c", {"a": "1", "b": "2", "#c": ""}),
    ],
)
def test_text_is_read_as_java_reads_it(text: str, expected: dict[str, str]) -> None:
    assert parse_config_text(text) == expected


def test_a_broken_unicode_escape_is_named() -> None:
    with pytest.raises(InvalidParameterError, match="escape"):
        parse_config_text("name=\\u00g1")


def test_long_texts_are_refused_and_others_are_read_in_proportion_to_their_length() -> None:
    """A line that went on in each next one took the square of its length: 19 s of 2 MB, and a frame has 16."""
    with pytest.raises(InvalidParameterError, match="too long"):
        parse_config_text("a" * (CHARACTERS_MAX + 1))
    begun_s = time.process_time()
    assert len(parse_config_text("ab\\\n" * (CHARACTERS_MAX // 4))) == 1
    assert time.process_time() - begun_s < 2, "it took 4.3 s, now 0.2"


def test_text_is_written_sorted_one_setting_a_line() -> None:
    assert format_config_text({"b": "2", "a": "x=y"}) == "a=x=y\nb=2\n"
    assert parse_config_text(format_config_text({"b": "2", "a": "x=y"})) == {"a": "x=y", "b": "2"}
