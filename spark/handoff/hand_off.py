"""hand_off: moves a consumer group to a receipt, so that it goes on with exactly the next message of every queue."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from thermocline.remoting.errors import InvalidRequestError
from thermocline.remoting.tls import TlsOptions
from thermocline.spark.access.store_options import is_store_option, store_options
from thermocline.spark.handoff.receipt import Receipt, read_receipt

if TYPE_CHECKING:
    from thermocline.client.admin.hand_off_administration import HandedOver
    from thermocline.remoting.request_signature import Credentials

TIMEOUT_MS = 5_000


def hand_off(
    receipt: Receipt | str,
    *,
    group: str,
    namesrv: str,
    force: bool = False,
    options: Mapping[str, str] | None = None,
    timeout_ms: int = TIMEOUT_MS,
    tls: TlsOptions | None = None,
    credentials: Credentials | None = None,
) -> Sequence[HandedOver]:
    """Move a group without members; return the queues in which it was moved now.

    All brokers agree before any moves it. A receipt is applied once: repeat the call after a failure until it succeeds;
    what was done before is not done again, and not returned again. `force` passes over what makes the load no whole
    one, over where the group is, over messages that have expired since, and over a broker that is another than the one
    that was read, as one that was recovered is; never over a live member, another life of the topic, or an offset that
    is not there. `options` say how to reach the bucket that holds a receipt; `timeout_ms` how long a NameServer or
    broker may take to answer, at least 20 s where it answers when a move is durable. `tls` how connections to them are
    encrypted; None: as the environment says (docs/security.md). `credentials` sign the requests; without them the keys
    in the environment do, if there are any.

    Raises:
        InvalidRequestError: The load was no whole one, or a broker refuses; see `AdminClient.hand_off`.
        CorruptDataError: The receipt was changed.
        UnavailableError: Bucket, NameServer or a broker gave no answer; repeat the call.
    """
    from thermocline.client.admin.admin_client import AdminClient
    from thermocline.client.credentials import environment_credentials
    from thermocline.client.tls_environment import environment_tls

    if isinstance(receipt, str):
        given = dict(options or {})
        for name in given:
            if not is_store_option(name.lower()):
                raise InvalidRequestError("this says nothing of how to reach a bucket; s3.* does", option=name)
        receipt = read_receipt(receipt, store_options(given))
    if receipt.obstacles and not force:
        raise InvalidRequestError(
            f"no group can go on after this load: {', '.join(receipt.obstacles)}", receipt=receipt.receipt_id
        )
    tls, keys = tls or environment_tls(), credentials or environment_credentials()
    with AdminClient(namesrv=namesrv, request_timeout_ms=timeout_ms, tls=tls, credentials=keys) as admin:
        return admin.hand_off(
            group, receipt.targets(group), receipt_id=receipt.receipt_id, force=force, stores=receipt.stores()
        )
