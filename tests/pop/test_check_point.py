"""Check points as records of the revive topic."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thermocline.pop.check_point import CheckPoint
from thermocline.remoting.errors import CorruptDataError
from thermocline.remoting.offsets import QueueOffset
from thermocline.remoting.records.properties import decode_properties

JAVA = (
    b'{"bm":-2147483648,"bn":"broker-a","c":"g","d":[0,3],"it":60000,"n":2,"pt":1000,"q":1,"reviveTime":61000,"ro":0,'
    b'"so":5,"sp":false,"t":"t"}'
)
CHECK_POINT = CheckPoint(
    topic="t",
    group="g",
    queue_id=1,
    start_offset=5,
    offsets=(5, 8),
    pop_time_ms=1_000,
    invisible_ms=60_000,
    broker_name="broker-a",
    acked_bits=1 << 31,
)


def test_body_as_rocketmq_writes_it() -> None:
    assert CHECK_POINT.body() == JAVA
    assert CheckPoint.parse(JAVA, broker_name="own") == CHECK_POINT


def test_properties_as_rocketmq_writes_them() -> None:
    assert decode_properties(CHECK_POINT.properties_text()) == {
        "UNIQ_KEY": "t@1@5@g@1000@broker-a@ck",
        "TAGS": "ck",
        "TIMER_DELIVER_MS": "60000",
    }


def test_old_releases_wrote_a_count_alone() -> None:
    old = CheckPoint.parse(b'{"bm":0,"c":"g","it":1,"n":3,"pt":2,"q":0,"ro":7,"so":10,"t":"t"}', broker_name="own")
    assert old.offsets == (10, 11, 12)
    assert old.broker_name == "own", "a record without a name is of the broker that has it"


def test_rewritten_and_suspended() -> None:
    text = b'{"bm":0,"c":"g","d":[0],"it":1,"n":1,"pt":2,"q":0,"ro":0,"rp":"3","so":1,"sp":true,"t":"t"}'
    parsed = CheckPoint.parse(text, broker_name="own")
    assert parsed.rewritten_times == 3
    assert parsed.is_suspended
    assert b'"rp":"3"' in parsed.body()
    many = CheckPoint.parse(text.replace(b'"rp":"3"', b'"rp":"%s"' % (b"9" * 5_000)), broker_name="own")
    assert many.rewritten_times == 0


def test_a_new_invisible_time_says_so() -> None:
    kept = CHECK_POINT.renewed(QueueOffset(8), pop_time_ms=2_000, invisible_ms=1, is_suspended=False)
    assert b'"reviveTime":2001,"rn":true,"ro":0' in kept.body()
    assert CheckPoint.parse(kept.body(), broker_name="own") == kept
    assert not CheckPoint.parse(JAVA, broker_name="own").is_renewal


def test_the_longest_invisible_time_is_written_and_read() -> None:
    longest = dataclasses.replace(CHECK_POINT, invisible_ms=(1 << 63) - 1)
    assert CheckPoint.parse(longest.body(), broker_name="own") == longest


@given(
    distances=st.sets(st.integers(0, 100_000), min_size=1, max_size=32),
    start=st.integers(0, 1 << 60),
    bits=st.integers(0, (1 << 32) - 1),
    is_suspended=st.booleans(),
)
def test_round_trip(distances: set[int], start: int, bits: int, is_suspended: bool) -> None:
    check_point = CheckPoint(
        topic="%RETRY%g+t",
        group="g",
        queue_id=7,
        start_offset=start,
        offsets=tuple(start + distance for distance in sorted(distances)),
        pop_time_ms=1 << 41,
        invisible_ms=1,
        broker_name="b",
        acked_bits=bits,
        is_suspended=is_suspended,
    )
    assert CheckPoint.parse(check_point.body(), broker_name="own") == check_point


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        b'{"t":"t"}',
        b"\xff",
        b'{"c":"g","t":"t","n":33,"so":1}',
        b'{"c":"g","t":"t","so":"x"}',
        b'{"c":"g","t":"t","so":1}',
        b'{"c":"g","t":"t","n":2000000000,"so":1}',
        b'{"c":"g","t":"t","n":-1,"so":1}',
        b'{"c":"g","t":"t","d":[0,0],"n":2,"so":1}',
        b'{"c":"g","t":"t","d":[1,0],"n":2,"so":1}',
        b'{"c":"g","t":"t","d":[-1],"n":1,"so":1}',
        b'{"c":"g","t":"t","d":[1],"n":1,"so":9223372036854775807}',
        b'{"c":"g","t":"t","n":1,"so":-1}',
        b'{"c":"g","t":"t","n":1,"so":1,"q":-1}',
        b'{"c":"g","t":"t","n":1,"so":1,"q":3000000000}',
        b'{"c":"g","t":"t","n":1,"so":1,"pt":-1}',
        b'{"c":"g","t":"t","n":1,"so":1,"it":9223372036854775808}',
        b'{"c":"g","t":"t\xff","n":1,"so":1}',
        b'{"c":"g","t":"t","n":1,"x":' + b"[" * 50_000 + b"]" * 50_000 + b"}",
    ],
    ids=lambda body: repr(body[:64]),
)
def test_invalid_records_are_corrupt(body: bytes) -> None:
    with pytest.raises(CorruptDataError):
        CheckPoint.parse(body, broker_name="own")
