"""Shared page: whole records only."""

from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from thermocline.broker.helpers.shared_page import PAGE_BYTES, RECORD_BYTES, SharedPage, Watermarks
from thermocline.remoting.errors import UnavailableError


def test_a_reader_sees_the_last_publication(tmp_path: Path) -> None:
    page = SharedPage.create(tmp_path / "thermocline" / "shared-page", generation=7, build_id=9)
    page.publish(append_offset=10, flush_offset=5, min_offset=0)
    reader = SharedPage.attach(tmp_path / "thermocline" / "shared-page")
    page.publish(append_offset=300, flush_offset=200, min_offset=100)
    seen = Watermarks(generation=7, build_id=9, append_offset=300, flush_offset=200, min_offset=100, seal_offset=200)
    assert reader.read() == seen


def test_sealing_may_stay_behind_the_flush(tmp_path: Path) -> None:
    """As slaves have not confirmed all that is flushed."""
    page = SharedPage.create(tmp_path / "page", generation=1, build_id=1)
    page.publish(append_offset=300, flush_offset=200, min_offset=100, seal_offset=150)
    assert SharedPage.attach(tmp_path / "page").read().seal_offset == 150
    with pytest.raises(AssertionError):
        page.publish(append_offset=300, flush_offset=200, min_offset=100, seal_offset=149)
    with pytest.raises(AssertionError):
        page.publish(append_offset=300, flush_offset=200, min_offset=100, seal_offset=201)


def test_nothing_is_read_before_the_first_publication(tmp_path: Path) -> None:
    SharedPage.create(tmp_path / "page", generation=1, build_id=1)
    with pytest.raises(UnavailableError):
        SharedPage.attach(tmp_path / "page")


def test_a_missing_page_is_unavailable(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError):
        SharedPage.attach(tmp_path / "page")


@given(
    old=st.tuples(*[st.integers(0, 2**40)] * 3).map(sorted),
    grown=st.tuples(*[st.integers(1, 2**30)] * 3),
    torn_at=st.integers(1, RECORD_BYTES - 1),
)
@example(old=[0, 0, 3], grown=(1, 1, 251), torn_at=25)  # sequence and append offset change by the same bits
def test_a_torn_record_is_never_believed(
    tmp_path_factory: pytest.TempPathFactory, old: list[int], grown: tuple[int, int, int], torn_at: int
) -> None:
    path = tmp_path_factory.mktemp("page") / "page"
    page = SharedPage.create(path, generation=1, build_id=2)
    page.publish(min_offset=old[0], flush_offset=old[1], append_offset=old[2])
    before = path.read_bytes()
    step = grown[0] + grown[1] + grown[2]
    page.publish(min_offset=old[0] + grown[0], flush_offset=old[1] + grown[0] + grown[1], append_offset=old[2] + step)
    after = path.read_bytes()
    path.write_bytes((after[:torn_at] + before[torn_at:])[:PAGE_BYTES])
    expected = {
        (old[0], old[1], old[2]),
        (old[0] + grown[0], old[1] + grown[0] + grown[1], old[2] + step),
    }
    try:
        marks = SharedPage.attach(path).read()
    except UnavailableError:
        return
    assert (marks.min_offset, marks.flush_offset, marks.append_offset) in expected


def test_the_flush_offset_does_not_fall(tmp_path: Path) -> None:
    """Helpers have indexed and sealed up to the last one."""
    page = SharedPage.create(tmp_path / "page", generation=1, build_id=1)
    page.publish(append_offset=10, flush_offset=5, min_offset=0)
    with pytest.raises(AssertionError):
        page.publish(append_offset=10, flush_offset=4, min_offset=0)
