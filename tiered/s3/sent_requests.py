"""SentRequests: reports each HTTP request that the S3 client sends, with its object store verb and its key.

Each is reported just before it is sent, for any caller: parts of a multipart upload, each bulk delete of 1000 keys,
each page of a listing, repetitions by a redirect or the client itself.

    CreateMultipartUpload, UploadPart, CompleteMultipartUpload    put: they have its price
    AbortMultipartUpload                                          delete
    ListMultipartUploads                                          remove_incomplete
    GetObject, PutObject                                          by Range and If-None-Match: get, get_range, ...

What a bulk delete is about is its first key; a listing its prefix. Belongs to the client's event loop.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import unescape

from thermocline.tiered.wrappers import Verb

Listener = Callable[[Verb, str], None]

_VERBS: Mapping[str, Verb] = {
    "GetObject": Verb.GET,
    "HeadObject": Verb.HEAD,
    "PutObject": Verb.PUT,
    "CreateMultipartUpload": Verb.PUT,
    "UploadPart": Verb.PUT,
    "CompleteMultipartUpload": Verb.PUT,
    "AbortMultipartUpload": Verb.DELETE,
    "DeleteObject": Verb.DELETE,
    "DeleteObjects": Verb.DELETE_MANY,
    "ListObjectsV2": Verb.LIST,
    "ListMultipartUploads": Verb.REMOVE_INCOMPLETE,
}
_FIRST_KEY = re.compile(rb"<Key>(.*?)</Key>", re.DOTALL)


class SentRequests:
    """Tells `listener` of what `client` sends about objects under `prefix` in `bucket`."""

    def __init__(self, client: Any, *, bucket: str, prefix: str, listener: Listener) -> None:
        self._bucket = bucket
        self._prefix = prefix
        self._listener = listener
        client.meta.events.register("before-send.s3", self._before_send)

    def _before_send(self, request: Any, event_name: str = "", **_: object) -> None:
        operation = event_name.rpartition(".")[2]
        self._listener(verb_of(operation, request.headers), self._key_of(operation, request))

    def _key_of(self, operation: str, request: Any) -> str:
        url = urlsplit(str(request.url))
        if operation in ("ListObjectsV2", "ListMultipartUploads"):
            full_key = parse_qs(url.query).get("prefix", [""])[0]
        elif operation == "DeleteObjects":
            found = _FIRST_KEY.search(bytes(request.body or b""))
            full_key = unescape(found[1].decode()) if found is not None else ""
        else:
            full_key = unquote(str(url.path)).removeprefix("/")
            if not url.netloc.startswith(f"{self._bucket}."):
                full_key = full_key.removeprefix(f"{self._bucket}/")
        return full_key.removeprefix(self._prefix)


def verb_of(operation: str, headers: Mapping[str, Any]) -> Verb:
    """For which verb an operation is. One that is none of ours counts as a get."""
    verb = _VERBS.get(operation, Verb.GET)
    if verb is Verb.GET and "Range" in headers:
        return Verb.GET_SUFFIX if _text(headers["Range"]).startswith("bytes=-") else Verb.GET_RANGE
    if operation == "PutObject" and "If-None-Match" in headers:
        return Verb.CREATE_IF_ABSENT
    return verb


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
