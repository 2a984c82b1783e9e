"""Families of what a daemon refuses, which brokers and proxies show under the same names: limits, quotas, access."""

from __future__ import annotations

from collections.abc import Mapping

from thermocline.remoting.health.exposition import Exposition, Families, MetricType

__all__ = ["REFUSAL_FAMILIES", "show_refusals"]

REFUSAL_FAMILIES: Families = {
    "thermocline_limit_refused_total": (
        MetricType.COUNTER,
        "Requests refused and connections closed because of a limit, by the limit's setting.",
    ),
    "thermocline_quota_refused_total": (
        MetricType.COUNTER,
        "Sends, pulls and POPs refused because of a quota, by its kind and name.",
    ),
    "thermocline_access_denied_total": (
        MetricType.COUNTER,
        "Requests refused by access control, by stage: authentication, authorization.",
    ),
}


def show_refusals(
    page: Exposition,
    *,
    limits: Mapping[str, int],
    quotas: Mapping[tuple[str, str], int],
    denials: Mapping[str, int],
) -> None:
    """Add counts by limit, by kind and name of a quota, and by stage of access control."""
    for limit, times in limits.items():
        page.add("thermocline_limit_refused_total", times, {"limit": limit})
    for (kind, name), times in quotas.items():
        page.add("thermocline_quota_refused_total", times, {"kind": kind, "name": name})
    for stage, times in denials.items():
        page.add("thermocline_access_denied_total", times, {"stage": stage})
