"""Settings of the cold tier: what no reader could read is not written."""

from __future__ import annotations

import pytest

from thermocline.remoting.errors import InvalidRequestError
from thermocline.tiered.budgets import TierConfig
from thermocline.tiered.segments import FRAME_RAW_BYTES_MAX


def test_a_frame_is_not_larger_than_readers_take() -> None:
    segment_bytes = 4 * FRAME_RAW_BYTES_MAX
    assert TierConfig(segment_bytes=segment_bytes, frame_bytes=FRAME_RAW_BYTES_MAX).frame_bytes == FRAME_RAW_BYTES_MAX
    with pytest.raises(InvalidRequestError, match="coldFrameBytes must be at most"):
        TierConfig(segment_bytes=segment_bytes, frame_bytes=FRAME_RAW_BYTES_MAX + 1)
