"""Request headers: fields by name, and what makes a request malformed."""

from __future__ import annotations

import pytest

from thermocline.proxy.http2.request_headers import headers_of


def test_the_first_value_of_each_name_counts_and_all_of_x_forwarded_for() -> None:
    fields = [(":path", "/a"), ("x-mq-language", "JAVA"), ("x-mq-language", "GO")]
    forwarded = [("x-forwarded-for", "10.0.0.1"), ("x-forwarded-for", "10.0.0.2")]
    assert headers_of([*fields, *forwarded]) == {
        ":path": "/a",
        "x-mq-language": "JAVA",
        "x-forwarded-for": "10.0.0.1,10.0.0.2",
    }


@pytest.mark.parametrize(
    "fields",
    [
        [("Content-Type", "application/grpc")],
        [(":path", "/a"), (":path", "/b")],
        [("te", "trailers"), (":path", "/a")],
    ],
    ids=["a capital letter", "a pseudo-header field twice", "a pseudo-header field behind another"],
)
def test_malformed(fields: list[tuple[str, str]]) -> None:
    assert headers_of(fields) is None
