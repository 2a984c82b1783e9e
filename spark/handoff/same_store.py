"""Whether the brokers that a NameServer names are those whose history is read.

Broker names are not enough: every `thermocline dev` is the broker-a of a DefaultCluster. The store id is: it is stored
in the broker's directory and in its cold tier.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from thermocline.remoting.errors import IllegalOperationError, InvalidRequestError, UnsupportedRequestError
from thermocline.spark.reading.read_plan import ColdSource
from thermocline.tiered.objects import masked_url

if TYPE_CHECKING:
    from thermocline.client.admin.admin_client import AdminClient
    from thermocline.client.admin.hand_off_administration import GroupPlace

NO_GROUP = ""


def check_same_stores(stores: Mapping[str, str], sources: Iterable[ColdSource]) -> None:
    """Compare each broker's store id with the one in its cold tier; a broker without an id ("") passes.

    Raises:
        InvalidRequestError: NameServer and cold tier belong to different clusters.
    """
    for source in sources:
        store_uuid = stores.get(source.broker_name)
        if store_uuid and source.store_uuid and store_uuid != source.store_uuid:
            raise InvalidRequestError(
                "the broker that the NameServer names is not the one whose history is here: they belong to different"
                " clusters",
                broker=source.broker_name,
                path=f"{masked_url(source.url)} {source.root}",
            )


def ask_stores(admin: AdminClient, topic: str) -> dict[str, str]:
    """The ids of the stores of the brokers that have the topic, by name; none of a static topic's.

    Raises:
        TopicNotFoundError: No live broker has it.
        UnavailableError: NameServer or a broker gave no answer.
    """
    try:
        return stores_of(admin.group_places(NO_GROUP, topic))
    except (IllegalOperationError, UnsupportedRequestError):
        return {}


def stores_of(places: Iterable[GroupPlace]) -> dict[str, str]:
    """The same from the brokers' answers about a group."""
    return {place.queue.broker_name: place.store_uuid for place in places}
