"""Fencing: which of several writers gets a number in the ledger. Two modes, chosen by name (`coldFencing`).

conditional   The entry is created with `If-None-Match: *`; the store itself arbitrates. One request.
ballots       For stores that ignore that header, or honour it only for one request at a time. Uses only plain puts,
              gets and listings, and requires that every get and listing sees all puts that returned before it began.
              Needs no clock, and tolerates a writer of any slowness.

    {root}/ballots/{number:020}-{nonce}.json                  one for each writer that has ever begun; never deleted
    {root}/proposals/{version:020}-{number:020}-{nonce}.json  the entry that this ballot proposes as `version`

    begin    put a ballot above all others, then list the proposals; then read the ledger
    create   value := what an earlier ballot has proposed for this version (of several the highest), else our own entry
             put the proposal -> list the ballots above ours: any?  FencedError, for good
                              -> none: the value is chosen: publish it as ledger/{version}, delete the proposals

Why no two values are ever chosen for one version (Lamport's synod, with the store as one disk of Disk Paxos)
  - Say ballot B was chosen: its proposal was stored before its listing showed no ballot above B. Every later ballot was
    therefore stored after that listing began, and lists the proposals after that: it finds B's, or, B's having been
    published and deleted meanwhile, reads the published entry. By induction all above B propose B's value.
  - Names are never used twice and contents never change, so a put that arrives late or twice changes nothing. A ballot
    proposes one value for a version, whatever value a later call passes (`_values`).
  - Ballots are never deleted, so a writer that was suspended during its successor's whole run is fenced when it
    resumes, whatever garbage collection has removed meanwhile: no slot is ever free for it. A listing need not be an
    atomic snapshot, because no object is deleted from the listed folder.
  - Entries are published with `If-None-Match: *` all the same: where the store honours it, the entry of a broker in the
    other mode on the same prefix is detected, not overwritten.

A successor may complete a fenced writer's proposal: it enters the ledger once, or not at all.
Each commit costs an additional PUT, listing and DELETE. Belongs to the writer's loop.
"""

from __future__ import annotations

import contextlib
import logging
import re
from enum import StrEnum
from random import Random
from typing import Protocol

from thermocline.remoting.errors import FencedError, ObjectNotFoundError, ObjectStoreUnavailableError
from thermocline.tiered.catalog import decode_entry
from thermocline.tiered.objects import AlreadyExistsError, ObjectStore
from thermocline.tiered.segments import BrokerKeys

logger = logging.getLogger(__name__)

BALLOT_BYTES = b"{}"
_PROPOSAL_NAME = re.compile(r"(\d{20})-(\d{20}-[0-9a-f]{32})\.json")
_BALLOT_NAME = re.compile(r"(\d{20})-[0-9a-f]{32}\.json")


class FencingMode(StrEnum):
    """The values of `coldFencing`."""

    CONDITIONAL = "conditional"
    BALLOTS = "ballots"


class EntryArbiter(Protocol):
    """Assigns each version of a ledger to one writer. One for each writer; used by `LedgerWriter` alone."""

    requests_per_entry: int
    """Write and list requests for one entry."""
    creates_exactly: bool
    """Whether the mode relies on the store's `create_if_absent`; otherwise listings must not lag."""

    async def begin(self, *, epoch: int) -> bool:
        """Begin; `epoch` is the ledger's. True: the caller must read the ledger again, earlier reads do not count.

        Raises:
            ObjectStoreUnavailableError: No answer; call it again.
        """

    async def create(self, version: int, data: bytes) -> None:
        """Make `data` the ledger's entry of `version`. Call it again with the same after an unknown outcome.

        Raises:
            AlreadyExistsError: The version has an entry, and it can be read. It may be this one, of an earlier call.
            FencedError: A later writer has begun; this one creates no entry any more.
            LedgerCorruptError: An earlier writer's proposal for the version, which it may still publish, is damaged.
            ObjectStoreUnavailableError: Unknown outcome: the entry may have been created.
        """


def ballot_of(key: str, keys: BrokerKeys) -> str | None:
    """The ballot in an object's name; None if the key is not a ballot's."""
    name = key.removeprefix(keys.ballots_prefix)
    return name.removesuffix(".json") if name != key and _BALLOT_NAME.fullmatch(name) else None


def proposal_of(key: str, keys: BrokerKeys) -> tuple[int, str] | None:
    """Version and ballot in a proposal's name; None if the key is not a proposal's."""
    name = key.removeprefix(keys.proposals_prefix)
    match = _PROPOSAL_NAME.fullmatch(name)
    return (int(match[1]), match[2]) if match and name != key else None


def new_arbiter(mode: FencingMode, store: ObjectStore, keys: BrokerKeys, *, random: Random) -> EntryArbiter:
    """One writer's arbiter. `random` must differ in every process."""
    if mode is FencingMode.BALLOTS:
        return BallotArbiter(store, keys, random=random)
    return ConditionalArbiter(store, keys)


class ConditionalArbiter:
    """The store arbitrates."""

    requests_per_entry = 1
    creates_exactly = True

    def __init__(self, store: ObjectStore, keys: BrokerKeys) -> None:
        self._store = store
        self._keys = keys

    async def begin(self, *, epoch: int) -> bool:
        """See EntryArbiter: nothing to do."""
        return False

    async def create(self, version: int, data: bytes) -> None:
        """See EntryArbiter; never raises FencedError."""
        await self._store.create_if_absent(self._keys.ledger_entry(version), data)


class BallotArbiter:
    """Arbitrates without the store's help; see the module's header."""

    requests_per_entry = 3
    creates_exactly = False

    def __init__(self, store: ObjectStore, keys: BrokerKeys, *, random: Random) -> None:
        """`random` makes the ballot's nonce: it must differ in every process."""
        self._store = store
        self._keys = keys
        self._random = random
        self._ballot: str | None = None
        self._has_begun = False
        self._values: dict[int, bytes] = {}
        """This ballot's proposals by version, inherited or its own; never replaced."""
        self._inherited: set[int] = set()
        """Versions whose value comes from an earlier ballot."""
        self._proposals: dict[str, int] = {}
        """Proposals seen, with their versions: deleted once the version has its entry."""

    @property
    def ballot(self) -> str | None:
        """This writer's ballot; None before `begin`."""
        return self._ballot if self._has_begun else None

    async def begin(self, *, epoch: int) -> bool:
        """See EntryArbiter."""
        if self._has_begun:
            return False
        if self._ballot is None:
            self._ballot = await self._next_ballot(at_least=epoch + 1)
        await self._store.put(self._keys.ballot(self._ballot), BALLOT_BYTES)
        await self._inherit()
        self._has_begun = True
        logger.info("ballot taken root=%s ballot=%s inherited=%d", self._keys.root, self._ballot, len(self._values))
        return True

    async def create(self, version: int, data: bytes) -> None:
        """See EntryArbiter."""
        ballot = self._ballot
        assert ballot is not None
        assert self._has_begun, "a ballot that has not listed the proposals must not make one"
        # Versions only rise. The value of the last one is kept: the call may be repeated after it was published.
        self._values = {other: value for other, value in self._values.items() if other >= version}
        value = self._values.setdefault(version, data)
        if version in self._inherited:
            # It may have been chosen, so no other value may be; but publishing damaged bytes would end the ledger.
            decode_entry(value, version=version)
        proposal = self._keys.proposal(version, ballot)
        self._proposals[proposal] = version
        await self._store.put(proposal, value)
        await self._check_highest(ballot)
        await self._publish(version, value)
        await self._delete_proposals(version)
        if value != data:
            raise AlreadyExistsError(key=self._keys.ledger_entry(version))

    async def _next_ballot(self, *, at_least: int) -> str:
        """A ballot above all existing ones; those with a number below `at_least` need no check."""
        number = at_least
        start_after = f"{self._keys.ballots_prefix}{at_least:020}"
        async for info in self._store.list(self._keys.ballots_prefix, start_after=start_after):
            ballot = ballot_of(info.key, self._keys)
            if ballot is not None:
                number = max(number, int(ballot.partition("-")[0]) + 1)
        return f"{number:020}-{self._random.getrandbits(128):032x}"

    async def _inherit(self) -> None:
        """Take over earlier ballots' proposals that are not known to be published."""
        latest: dict[int, tuple[str, str]] = {}
        async for info in self._store.list(self._keys.proposals_prefix):
            proposal = proposal_of(info.key, self._keys)
            if proposal is not None:
                version, ballot = proposal
                self._proposals[info.key] = version
                latest[version] = max(latest.get(version, ("", "")), (ballot, info.key))
        for version, (_, key) in latest.items():
            with contextlib.suppress(ObjectNotFoundError):  # published since: the ledger is read after this
                self._values[version] = await self._store.get(key)
                self._inherited.add(version)

    async def _check_highest(self, ballot: str) -> None:
        """FencedError when there is a ballot above ours."""
        async for info in self._store.list(self._keys.ballots_prefix, start_after=self._keys.ballot(ballot)):
            raise FencedError("a later writer has taken over", root=self._keys.root, later_ballot=info.key)

    async def _publish(self, version: int, value: bytes) -> None:
        key = self._keys.ledger_entry(version)
        try:
            await self._store.create_if_absent(key, value)
        except AlreadyExistsError:
            # By an earlier attempt, or by another writer that inherited the value: then the bytes are the same.
            try:
                published = await self._store.get(key)
            except ObjectNotFoundError as error:
                raise ObjectStoreUnavailableError("an entry came and went", key=key) from error
            if published != value:
                raise

    async def _delete_proposals(self, version: int) -> None:
        """Delete the proposals of `version`, which has its entry, and earlier ones; the next writer deletes others."""
        settled = [key for key, other in self._proposals.items() if other <= version]
        try:
            await self._store.delete_many(settled)
        except ObjectStoreUnavailableError as error:
            logger.debug("proposals not deleted root=%s: %s", self._keys.root, error)
            return
        for key in settled:
            del self._proposals[key]
