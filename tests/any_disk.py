"""Settings under which it decides nothing how full the disk is that the tests run on."""

from __future__ import annotations

ANY_DISK = {"disk_used_ratio_max": 1.0, "disk_used_ratio_force": 1.0, "disk_used_ratio_refuse": 1.0}
"""As a `StoreConfig` takes them."""
ANY_DISK_PROPERTIES = dict.fromkeys(
    ("diskMaxUsedSpaceRatio", "diskSpaceCleanForciblyRatio", "diskSpaceWarningLevelRatio"), "100"
)
"""As a broker process takes them."""
