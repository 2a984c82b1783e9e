"""Places in the store that RocketMQ, or guides to it, let a configuration name one by one.

Here all are in the store's folder, `storePathRootDir`: a name is accepted with the place that it has there, and refused
with any other.
"""

from __future__ import annotations

from collections.abc import Mapping

from thermocline.remoting.errors import SettingError

__all__ = ["PLACES_IN_STORE", "check_place"]

PLACES_IN_STORE: Mapping[str, str] = {
    "storePathCommitLog": "commitlog",
    "storePathConsumeQueue": "consumequeue",
    "storePathIndex": "index",
    "storeCheckpoint": "checkpoint",
    "abortFile": "abort",
    "storePathEpochFile": "epochFileCheckpoint",
}


def check_place(name: str, text: str, *, root_path: str, source: str) -> None:
    """Refuse a place outside the store.

    Raises:
        SettingError: The sentence for the operator.
    """
    place = PLACES_IN_STORE[name]
    if text.strip() and text.strip().rstrip("/") != f"{root_path.rstrip('/')}/{place}":
        raise SettingError(
            f"{name} can only be {place} in storePathRootDir, {root_path}; set it so or remove it",
            value=text,
            source=source,
        )
