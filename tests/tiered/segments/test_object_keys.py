"""Names of objects: readable, safe on file systems, and what they say is found again."""

from __future__ import annotations

import pytest

from thermocline.tiered.objects.object_store import check_key
from thermocline.tiered.segments.object_keys import BrokerKeys, escape_name, segment_id_of
from thermocline.tiered.segments.segment_format import SegmentId


@pytest.mark.parametrize(
    ("name", "escaped"),
    [
        ("orders_log-1", "orders_log-1"),
        ("%RETRY%group", "=25RETRY=25group"),
        ("a|b", "a=7Cb"),
        ("host.example", "host.example"),
        ("..", "=2E."),
        (".hidden", "=2Ehidden"),
        ("a/b", "a=2Fb"),
        ("ä", "=C3=A4"),
        ("=25", "=3D25"),
    ],
)
def test_names_are_escaped(name: str, escaped: str) -> None:
    assert escape_name(name) == escaped


def test_long_names_are_cut_and_stay_apart() -> None:
    first, second = escape_name("%" * 255), escape_name("%" * 254 + "|")
    assert first != second
    assert len(first) <= 200
    assert len(escape_name("x" * 200)) == 200
    assert escape_name("x" * 201) != escape_name("x" * 202)


def test_keys() -> None:
    keys = BrokerKeys.of(cluster="DefaultCluster", broker_name="broker-a")
    log, cq, idx = keys.segment("%RETRY%g", SegmentId(3, 7))
    assert log == "DefaultCluster/broker-a/topics/=25RETRY=25g/0000000003-0000000007.log"
    assert (cq, idx) == (log.replace(".log", ".cq"), log.replace(".log", ".idx"))
    assert keys.ledger_entry(12) == "DefaultCluster/broker-a/ledger/00000000000000000012.json"
    everything = [log, cq, idx, keys.head_hint, keys.ledger_entry(1), keys.checkpoint_head(1), keys.pin("job")]
    everything.append(keys.checkpoint_bucket(1, 0, epoch=1))
    for key in everything:
        check_key(key)
        assert not any(other.startswith(f"{key}/") for other in everything)


def test_keys_are_read_back() -> None:
    keys = BrokerKeys("c/b")
    assert keys.ledger_version(keys.ledger_entry(12)) == 12
    assert keys.checkpoint_part(keys.checkpoint_head(7)) == (7, None)
    assert keys.checkpoint_part(keys.checkpoint_bucket(7, 3, epoch=5)) == (7, 5)
    assert segment_id_of(keys.segment("t", SegmentId(3, 7))[1]) == SegmentId(3, 7)
    assert segment_id_of("c/b/packs/1d/0000000003-0000000007.pack") == SegmentId(3, 7)
    for key in ("c/b/ledger/12.json", "c/b/ledger/README", "other/ledger/00000000000000000012.json"):
        assert keys.ledger_version(key) is None
        assert keys.checkpoint_part(key) is None
        assert segment_id_of(key) is None
