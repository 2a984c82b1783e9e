"""The store's UUID."""

from __future__ import annotations

import pytest

from tests.simulated_disk import SimulatedDisk
from thermocline.remoting.errors import CorruptDataError
from thermocline.store.state.identity import load_or_make_identity

PATH = "/identity.json"


def test_made_once() -> None:
    disk = SimulatedDisk()
    assert load_or_make_identity(disk, PATH, make_id=lambda: "one").store_id == "one"
    assert load_or_make_identity(disk, PATH, make_id=lambda: "two").store_id == "one"
    assert disk.read(PATH) == b'{"storeId":"one","formatVersion":1}'


@pytest.mark.parametrize("data", [b"", b"{", b'{"storeId":"one","formatVersion":2}'])
def test_damage_is_never_replaced_by_a_new_one(data: bytes) -> None:
    """A new id would make the store a stranger to its own cold tier."""
    disk = SimulatedDisk()
    disk.open(PATH, create=True).write_at(data, 0)
    with pytest.raises(CorruptDataError):
        load_or_make_identity(disk, PATH, make_id=lambda: "two")
