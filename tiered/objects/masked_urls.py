"""masked_url: a cold tier's URL as it may be shown, logged and sent, without its secrets.

    s3://bucket/p?endpoint=http://host:1&access_key=AKIA...&secret_key=...
    s3://bucket/p?endpoint=http://host:1&access_key=***&secret_key=***

Only options listed here stay readable; all others are masked, as a misspelt option may hold a key too.
"""

from __future__ import annotations

import re
from urllib.parse import unquote

MASK = "***"
SHOWN_OPTIONS = frozenset({"endpoint", "region", "path_style", "storage_class", "sse", "sse_kms_key_id", "ca"})
_USER = re.compile(r"://[^/?#]*@")
_NO_VALUE = frozenset("@?=#&")  # in one that holds something else besides
_WORD = re.compile(r"[a-z_]{1,32}")


def masked_url(url: str) -> str:
    """The URL with `***` for the values of keys, for a user before the host, and for all that is no option."""
    rest, hash_sign, _ = url.partition("#")
    place, mark, query = rest.partition("?")
    options = "&".join(map(_masked_option, query.split("&"))) if query else ""
    return _USER.sub(f"://{MASK}@", place) + mark + options + (hash_sign and f"#{MASK}")


def without_options(url: str) -> str:
    """Only the place: the masked URL up to its options."""
    return masked_url(url.partition("#")[0]).partition("?")[0]


def is_masked(url: str) -> bool:
    """Whether values of this URL are masked, so that it opens nothing."""
    rest, _, fragment = url.partition("#")
    place, _, query = rest.partition("?")
    values = [fragment, *(option.rpartition("=")[2] for option in query.split("&"))]
    return f"://{MASK}@" in place or MASK in values


def _masked_option(option: str) -> str:
    name, sign, value = option.partition("=")
    if name in SHOWN_OPTIONS and _NO_VALUE.isdisjoint(unquote(value)):
        return option
    return f"{name}={MASK}" if sign and _WORD.fullmatch(name) else MASK
