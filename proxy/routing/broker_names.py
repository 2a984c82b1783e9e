"""Broker names of several clusters: those that clients and handles have, and those of a cluster's own brokers.

    default cluster     broker-a          as it is
    cluster `east`      broker-a@east

So whatever names a broker names its cluster: routes, receipt handles, transaction ids, recall handles. It goes to that
cluster, whatever the rules say by then, through any proxy that has the cluster, also after a restart. Two clusters may
have brokers of one name. A name that ends in no cluster of this proxy is one of the default cluster.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from thermocline.proxy.messaging import ProxyHandle
from thermocline.remoting.errors import UnavailableError
from thermocline.remoting.handles import ReceiptHandle, decode_recall_handle

__all__ = ["DEFAULT_CLUSTER", "BrokerNames"]

DEFAULT_CLUSTER = "default"
SEPARATOR = "@"


class BrokerNames:
    """See the module."""

    def __init__(self, clusters: Iterable[str] = ()) -> None:
        """`clusters`: their names, without the default one."""
        self._clusters = frozenset(clusters)

    @property
    def has_clusters(self) -> bool:
        """Whether there is more than the default cluster."""
        return bool(self._clusters)

    def split(self, name: str) -> tuple[str, str]:
        """The cluster that a name means, and the broker's name there."""
        plain, separator, cluster = name.rpartition(SEPARATOR)
        if separator and cluster in self._clusters:
            return cluster, plain
        return DEFAULT_CLUSTER, name

    def join(self, cluster: str, plain: str) -> str:
        """The name under which clients know a broker of a cluster.

        Raises:
            UnavailableError: The default cluster's broker is called like one of another cluster: it is not served.
        """
        if cluster != DEFAULT_CLUSTER:
            return f"{plain}{SEPARATOR}{cluster}"
        if self.split(plain)[0] != DEFAULT_CLUSTER:
            raise UnavailableError(
                "a broker of the default cluster has a name that means another cluster: rename it", broker_name=plain
            )
        return plain

    # -- handles -----------------------------------------------------------------------------------------------------

    def join_handle(self, cluster: str, handle: ProxyHandle) -> ProxyHandle:
        """The handle as clients get it."""
        receipt = handle.receipt
        return ProxyHandle(
            receipt=_renamed(receipt, self.join(cluster, receipt.broker_name)), physical_offset=handle.physical_offset
        )

    def split_handle(self, handle: ProxyHandle) -> tuple[str, ProxyHandle]:
        """The cluster of a handle, and the handle as its broker gave it."""
        cluster, plain = self.split(handle.receipt.broker_name)
        if cluster == DEFAULT_CLUSTER:
            return cluster, handle
        return cluster, ProxyHandle(receipt=_renamed(handle.receipt, plain), physical_offset=handle.physical_offset)

    def join_receipt(self, cluster: str, text: str) -> str:
        """The receipt handle in a text, as clients get it.

        Raises:
            InvalidRequestError: It is none.
        """
        receipt = ReceiptHandle.parse(text)
        return _renamed(receipt, self.join(cluster, receipt.broker_name)).text()

    def split_receipt(self, text: str) -> str:
        """The receipt handle in a text, as its broker gave it.

        Raises:
            InvalidRequestError: It is none.
        """
        receipt = ReceiptHandle.parse(text)
        return _renamed(receipt, self.split(receipt.broker_name)[1]).text()

    def join_recall(self, cluster: str, handle: str) -> str:
        """A recall handle as clients get it; an empty one stays so."""
        if cluster == DEFAULT_CLUSTER or not handle:
            return handle
        found = decode_recall_handle(handle)
        return replace(found, broker_name=self.join(cluster, found.broker_name)).encode()

    def split_recall(self, handle: str) -> tuple[str, str]:
        """The cluster of a recall handle, and the handle as its broker gave it.

        Raises:
            IllegalOperationError: It is none.
        """
        found = decode_recall_handle(handle)
        cluster, plain = self.split(found.broker_name)
        if cluster == DEFAULT_CLUSTER:
            return cluster, handle
        return cluster, replace(found, broker_name=plain).encode()


def _renamed(receipt: ReceiptHandle, broker_name: str) -> ReceiptHandle:
    return ReceiptHandle(
        start_offset=receipt.start_offset,
        pop_time_ms=receipt.pop_time_ms,
        invisible_ms=receipt.invisible_ms,
        revive_queue_id=receipt.revive_queue_id,
        retry_flag=receipt.retry_flag,
        broker_name=broker_name,
        queue_id=receipt.queue_id,
        queue_offset=receipt.queue_offset,
    )
