"""What of a cold tier's URL may be shown."""

from __future__ import annotations

import pytest

from thermocline.tiered.objects.masked_urls import is_masked, masked_url, without_options

PLAIN = [
    "none",
    "file:///var/lib/cold",
    "memory://name",
    "s3://bucket/prefix",
    "s3a://bucket/prefix?endpoint=https://host:9000&region=us-east-1&path_style=true&storage_class=STANDARD_IA"
    "&sse=aws:kms&sse_kms_key_id=arn:aws:kms:eu-central-1:1:key/2&ca=/etc/ca.pem",
]


@pytest.mark.parametrize("url", PLAIN)
def test_values_that_are_no_secret_stay(url: str) -> None:
    assert masked_url(url) == url
    assert not is_masked(url)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("s3://b?secret_key=TOP", "s3://b?secret_key=***"),
        (
            "s3://b/p?access_key=TOP&region=r&session_token=TOP",
            "s3://b/p?access_key=***&region=r&session_token=***",
        ),
        # Misspelt, cut short by a character that ought to have been escaped, or where no key belongs.
        ("s3://b?secretkey=TOP", "s3://b?secretkey=***"),
        ("s3://b?Secret_Key=TOP", "s3://b?***"),
        ("s3://b?secret_key=TO&TOP", "s3://b?secret_key=***&***"),
        ("s3://b?secret_key=TO#TOP", "s3://b?secret_key=***#***"),
        ("s3://b?secret_key=TO?TOP=1", "s3://b?secret_key=***"),
        ("s3://b#secret_key=TOP", "s3://b#***"),
        ("s3a://TOP:TOP@b/p", "s3a://***@b/p"),
        ("s3://b?endpoint=http://TOP:TOP@host", "s3://b?endpoint=***"),
        ("s3://b?endpoint=http%3A%2F%2FTOP%40host", "s3://b?endpoint=***"),
        ("s3://b?endpoint=http://host?secret_key=TOP", "s3://b?endpoint=***"),
        ("ftp://b?secret_key=TOP", "ftp://b?secret_key=***"),
    ],
)
def test_values_that_may_be_a_key_are_masked(url: str, shown: str) -> None:
    assert masked_url(url) == shown
    assert is_masked(shown)
    assert masked_url(shown) == shown
    assert not is_masked(url)
    assert "TOP" not in without_options(url)


def test_the_place_alone() -> None:
    assert without_options("s3a://TOP@b/p?secret_key=TOP#TOP") == "s3a://***@b/p"
    assert without_options("file:///x") == "file:///x"
