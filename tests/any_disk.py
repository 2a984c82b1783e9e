"""How full the disk is that the tests run on decides nothing: else a broker on a disk three quarters full seals at once
what a test means to seal, and at nine tenths takes no message.
"""

from __future__ import annotations

ANY_DISK = {"disk_used_ratio_max": 0.99, "disk_used_ratio_force": 0.99, "disk_used_ratio_refuse": 0.99}
"""For a `StoreConfig`."""
ANY_DISK_ENVIRONMENT = dict.fromkeys(
    (
        "THERMOCLINE_DISK_MAX_USED_SPACE_RATIO",
        "THERMOCLINE_DISK_SPACE_CLEAN_FORCIBLY_RATIO",
        "THERMOCLINE_DISK_SPACE_WARNING_LEVEL_RATIO",
    ),
    "99",
)
"""For broker processes."""
