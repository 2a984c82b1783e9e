"""WritesRefused: the store of a bucket whose encryption this client cannot write.

Reads pass: how an object is encrypted at rest is the store's business. What a read would put (pins, receipts) is
refused before it is sent, so that every object in the bucket has the encryption that the session sets.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from thermocline.remoting.errors import InvalidRequestError
from thermocline.tiered.objects import ObjectStore
from thermocline.tiered.wrappers import Result, StoreCall, Verb, WrappingObjectStore

PUTS = (Verb.PUT, Verb.CREATE_IF_ABSENT)


class WritesRefused(WrappingObjectStore):
    """Forwards everything but puts."""

    def __init__(self, inner: ObjectStore, *, algorithm: str) -> None:
        super().__init__(inner)
        self._algorithm = algorithm

    async def _around(self, call: StoreCall, attempt: Callable[[], Awaitable[Result]]) -> Result:
        if call.verb in PUTS:
            raise InvalidRequestError(
                "nothing is written to the bucket by this encryption: give s3.sse as AES256 or aws:kms for what a "
                "read puts there (pins and receipts, no messages)",
                option="fs.s3a.encryption.algorithm",
                value=self._algorithm,
                object=call.key,
            )
        return await attempt()
