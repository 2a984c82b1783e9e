"""Errors of the cold tier alone. The families, and how a caller handles each: remoting/errors.py."""

from __future__ import annotations

from thermocline.remoting.errors import CorruptDataError, InvalidRequestError, ObjectStoreUnavailableError

# -- change the request --------------------------------------------------------------------------------------------


class AlreadyExistsError(InvalidRequestError):
    """There is an object of that name. It may be this call's own: an earlier attempt whose answer was lost."""


class ForeignLedgerError(InvalidRequestError):
    """The prefix holds the history of another store directory."""


class UnfitStoreError(InvalidRequestError):
    """No broker is to run on the store as it is set up: it would let two writers commit with the fencing that is chosen
    (the message names what to choose), an option of its URL cannot be used on this machine, or it lacks the ledger
    that this broker has written, or that holds more than the broker's log."""


class VersionExpiredError(InvalidRequestError):
    """The catalog version is older than what is kept readable, or was never written."""


# -- retry the same later ------------------------------------------------------------------------------------------


class ObjectStoreRefusedError(ObjectStoreUnavailableError):
    """The store answers, and says no: credentials, a missing bucket, a malformed request. A retry at once is futile."""


class UntrustedStoreError(ObjectStoreRefusedError):
    """Who answers cannot show a certificate that we trust. Nothing was sent to it."""


class EarlierCommitUnsettledError(ObjectStoreUnavailableError):
    """An earlier commit's outcome is still unknown; nothing of this one was begun."""


# -- stop and repair -----------------------------------------------------------------------------------------------


class SegmentFormatError(CorruptDataError):
    """A part of a cold segment is not what the format says."""


class FormatTooNewError(SegmentFormatError):
    """A part, pack or index object is of a version that this release does not read, and a later one does. It is not
    known to be damaged: it is neither healed nor merged nor deleted for that."""


class FrameChecksumError(CorruptDataError):
    """A frame or block does not decompress to what was stored."""


class LedgerCorruptError(CorruptDataError):
    """Ledger entries or checkpoints contradict each other, or one is missing in the middle."""


class QuarantinedError(CorruptDataError):
    """These records were in an object that is damaged or gone, and are in no other place; the rest is readable."""


class QueueGapError(CorruptDataError):
    """Offsets that the catalog should cover are covered by no segment and declared lost by no hole."""


class StateCorruptError(CorruptDataError):
    """The object under a state snapshot's name is not one that this version can read."""


class StateTooNewError(StateCorruptError):
    """The state snapshot is whole, but of a later format than this version supports."""
