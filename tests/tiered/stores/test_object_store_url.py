"""A URL opens the store it names; one that names none is refused."""

from __future__ import annotations

import string
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thermocline.remoting.errors import InvalidRequestError
from thermocline.tiered.objects.masked_urls import MASK
from thermocline.tiered.stores.object_store_url import ObjectStoreOptions, open_object_store, parse_s3_url
from thermocline.tiered.wrappers import Verb


async def test_a_directory(tmp_path: Path) -> None:
    options = ObjectStoreOptions()
    store = await open_object_store(f"file://{tmp_path}/with%20space", options)
    await store.put("a/b", b"1")
    assert (tmp_path / "with space/a/b").read_bytes() == b"1"
    assert options.counters.requests[Verb.PUT] == 1
    await store.close()


async def test_memory_is_shared_by_name() -> None:
    first, second = await open_object_store("memory://shared"), await open_object_store("memory://shared")
    other = await open_object_store("memory://other")
    await first.put("a", b"1")
    assert await second.get("a") == b"1"
    assert [info.key async for info in other.list("")] == []


async def test_a_bucket() -> None:
    store = await open_object_store("s3://bucket/some/prefix?endpoint=http://127.0.0.1:9&access_key=k&secret_key=s")
    await store.close()
    options = parse_s3_url("s3a://bucket/some%20prefix/?region=eu-north-1&path_style=false&session_token=t")
    assert (options.bucket, options.prefix, options.region) == ("bucket", "some prefix", "eu-north-1")
    assert (options.path_style, options.session_token, options.endpoint) == (False, "t", None)
    assert "secret" not in repr(parse_s3_url("s3://bucket?secret_key=secret"))


KEYS = st.lists(
    st.text(string.ascii_letters + string.digits + "+/=", min_size=1)  # as services make them
    | st.text(string.ascii_letters + string.digits + string.punctuation, min_size=1).filter(lambda key: key != MASK),
    min_size=3,
    max_size=3,
)


@given(keys=KEYS)
def test_keys_come_back_as_they_are_written(keys: list[str]) -> None:
    """Escaped as far as they have to be, and as a program does it that escapes everything."""
    written = dict(zip(("access_key", "secret_key", "session_token"), keys, strict=True))
    for safe in ("".join(set(string.punctuation) - set("%&#")), ""):
        options = "&".join(f"{name}={quote(key, safe=safe)}" for name, key in written.items())
        found = parse_s3_url(f"s3://bucket/prefix?endpoint=http://127.0.0.1:9&{options}&region=r")
        assert {name: getattr(found, name) for name in written} == written
        assert (found.endpoint, found.region, found.prefix) == ("http://127.0.0.1:9", "r", "prefix")


@given(key=st.text(min_size=1).filter(lambda key: key != MASK))
def test_a_key_of_any_characters_comes_back_when_it_is_escaped(key: str) -> None:
    assert parse_s3_url(f"s3://bucket?secret_key={quote(key, safe='')}").secret_key == key


def test_a_key_is_not_cut_off_without_a_word() -> None:
    with pytest.raises(InvalidRequestError, match="%23") as caught:
        parse_s3_url("s3://bucket?secret_key=AKID#TOPSECRET")
    assert "SECRET" not in str(caught.value)
    with pytest.raises(InvalidRequestError, match="unknown option") as caught:
        parse_s3_url("s3://bucket?secret_key=AKID&TOPSECRET=1")
    assert "SECRET" not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    ["", "none", "/tmp/x", "file://host/x", "file:relative", "memory://", "s3://", "http://x", "s3://b?what=1"],
)
async def test_urls_without_a_store_are_refused(url: str) -> None:
    with pytest.raises(InvalidRequestError):
        await open_object_store(url)


@pytest.mark.parametrize("character", "#?")
async def test_a_directory_keeps_all_of_its_name(tmp_path: Path, character: str) -> None:
    """Else its history would lie in another one than the URL says."""
    with pytest.raises(InvalidRequestError, match=quote(character)):
        await open_object_store(f"file://{tmp_path}/cold{character}1")
    store = await open_object_store(f"file://{tmp_path}/cold{quote(character)}1")
    await store.put("key", b"value")
    await store.close()
    assert (tmp_path / f"cold{character}1" / "key").exists()


@pytest.mark.parametrize(
    "place",
    ["ftp://host/x", "s3://", "s3:///x", "http://bucket", "S3//bucket", "s3://[bucket", "file://host/x", "s3://b&x"],
)
async def test_no_error_tells_keys(place: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        await open_object_store(f"{place}?what=1&access_key=AKIDSECRET&secret_key=TOPSECRET&session_token=TOKENSECRET")
    assert "SECRET" not in str(caught.value)
