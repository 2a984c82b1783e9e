"""RequestKind: the verbs of an object store as its bill groups them."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from thermocline.tiered.wrappers import Verb


class RequestKind(StrEnum):
    """What a store charges for under one price."""

    PUT = "put"
    GET = "get"
    LIST = "list"
    DELETE = "delete"


KIND_OF_VERB: Mapping[Verb, RequestKind] = {
    Verb.GET: RequestKind.GET,
    Verb.GET_RANGE: RequestKind.GET,
    Verb.GET_SUFFIX: RequestKind.GET,
    Verb.HEAD: RequestKind.GET,
    Verb.PUT: RequestKind.PUT,
    Verb.CREATE_IF_ABSENT: RequestKind.PUT,
    Verb.LIST: RequestKind.LIST,
    Verb.REMOVE_INCOMPLETE: RequestKind.LIST,
    Verb.DELETE: RequestKind.DELETE,
    Verb.DELETE_MANY: RequestKind.DELETE,
}
assert KIND_OF_VERB.keys() == set(Verb)


def requests_by_kind(requests: Mapping[Verb, int]) -> dict[RequestKind, int]:
    """Counts of verbs as counts of kinds, each kind named."""
    counts = dict.fromkeys(RequestKind, 0)
    for verb, count in requests.items():
        counts[KIND_OF_VERB[verb]] += count
    return counts
