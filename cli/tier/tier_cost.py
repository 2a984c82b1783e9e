"""`thermocline tier cost`: requests and bytes of the cold tier at the object store, their price, and forecasts.

Brokers count requests and bytes, the price table is this command's: `--prices FILE`, or the example that comes along.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from thermocline.cli.common.application import Application, uses_cluster
from thermocline.cli.common.output import bytes_text
from thermocline.cli.common.parsing import DURATION, SIZE, duration_text

if TYPE_CHECKING:
    from thermocline.tiered.cost import PriceTable

__all__ = ["cost"]

KINDS = ("put", "get", "list", "delete")
HOUR_MS = 3_600_000
AT_START = "doctor"
"""The requests of a start: not part of a rate."""
TOPICS_SHOWN = 20
NO_TOPIC = "(none)"
"""The requests of a start, and those for deleted topics."""


@click.command("cost", short_help="Show requests, bytes and money; forecast them.")
@click.argument("topic", required=False)
@click.option(
    "--prices",
    "prices_path",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Price table (TOML); without it an example counts, which is no offer.",
)
@click.option("--ttl", "ttl_ms", type=DURATION, help="Forecast for this time to live, of TOPIC or all; 0s: for ever.")
@click.option("--seal-size", "segment_bytes", type=SIZE, help="Forecast for this coldSegmentBytes.")
@click.option("--seal-age", "seal_age_ms", type=DURATION, help="Forecast for this coldSealAgeMs.")
@click.option("--forecast", "wants_forecast", is_flag=True, help="Forecast for the settings that there are.")
@uses_cluster
def cost(
    app: Application,
    topic: str | None,
    prices_path: Path | None,
    ttl_ms: int | None,
    segment_bytes: int | None,
    seal_age_ms: int | None,
    wants_forecast: bool,
) -> None:
    """Show the requests of each broker to its object store since its tier process began, their price, the price of an
    hour and a month (of 30 days) at the rate of the last hour, and the stored bytes. With another time to live, seal
    size or seal age: forecast the price of an hour and a month, if the traffic of the last hour repeats.

    \b
    Example:
      thermocline tier cost --seal-age 30m --prices prices.toml
    """
    from thermocline.tiered.cost import PriceTable

    prices = PriceTable.example() if prices_path is None else PriceTable.load(prices_path)
    settings = {"ttl_ms": ttl_ms, "segment_bytes": segment_bytes, "seal_age_ms": seal_age_ms}
    wants_forecast = wants_forecast or any(value is not None for value in settings.values())
    with app.open_admin() as admin:
        if wants_forecast:
            answers = admin.forecast_tier_cost(topic, **settings)
        else:
            answers = admin.tier_cost(topic)
    bills = [_bill(broker, answer, prices) for broker, answer in answers.items()]
    if app.output.as_json:
        app.output.value({"prices": prices.name, "currency": prices.currency, "brokers": bills})
        return
    for bill in bills:
        _show(app, bill, prices)
    if prices_path is None:
        app.output.note("prices are an example and no offer: name your own with --prices")


def _bill(broker: str, answer: Mapping[str, Any], prices: PriceTable) -> dict[str, Any]:
    """One broker's answer, with money."""
    hours = answer["recentMs"] / HOUR_MS
    purposes = [_purpose(account, prices, hours=hours) for account in answer["accounts"]]
    storage = {
        "stored_bytes": answer["storedBytes"],
        "removed_bytes": answer["removedBytes"],
        "cost_per_month": round(prices.stored(answer["storedBytes"] + answer["removedBytes"]), 6),
    }
    requests_per_month = sum(purpose["cost_per_month"] for purpose in purposes)
    return {
        "broker": broker,
        "started_timestamp_ms": answer["startedMs"],
        "elapsed_ms": answer["nowMs"] - answer["startedMs"],
        "recent_ms": answer["recentMs"],
        "purposes": purposes,
        "topics": [_topic(each, prices) for each in answer["topics"]],
        "storage": storage,
        "cost_since_start": round(sum(purpose["cost"] for purpose in purposes), 6),
        "cost_per_month": round(requests_per_month + storage["cost_per_month"], 6),
        "budget": _budget(answer.get("budget")),
        "forecast": _forecast(answer["forecast"], answer, prices) if answer.get("forecast") else None,
    }


def _budget(budget: Mapping[str, Any] | None) -> dict[str, Any] | None:
    if budget is None:
        return None
    return {
        "requests_per_hour": budget["requestsPerHour"],
        "left": budget["left"],
        "is_widened": budget["isWidened"],
        "waiting_topics": budget["waitingTopics"],
        "yielded_requests": budget.get("yieldedRequests", 0),
    }


def _purpose(account: Mapping[str, Any], prices: PriceTable, *, hours: float) -> dict[str, Any]:
    recent = {"requests": account["recentRequests"], "sentBytes": account["recentSentBytes"]}
    recent["receivedBytes"] = account["recentReceivedBytes"]
    per_hour = 0.0 if account["purpose"] == AT_START else _money(recent, prices) / hours
    return {
        "purpose": account["purpose"],
        **{kind: account["requests"].get(kind, 0) for kind in KINDS},
        "errors": account["errors"],
        "sent_bytes": account["sentBytes"],
        "received_bytes": account["receivedBytes"],
        "cost": round(_money(account, prices), 6),
        "cost_per_hour": round(per_hour, 6),
        "cost_per_month": round(per_hour * _hours_per_month(), 6),
    }


def _topic(topic: Mapping[str, Any], prices: PriceTable) -> dict[str, Any]:
    """Requests for its own objects, and its share of those for shared objects."""
    shared = {
        "requests": topic["sharedRequests"],
        "sentBytes": topic["sharedSentBytes"],
        "receivedBytes": topic["sharedReceivedBytes"],
    }
    return {
        "topic": topic["topic"] or NO_TOPIC,
        **{kind: topic["requests"].get(kind, 0) for kind in KINDS},
        "sent_bytes": topic["sentBytes"],
        "received_bytes": topic["receivedBytes"],
        "cost": round(_money(topic, prices), 6),
        **{f"shared_{kind}": topic["sharedRequests"].get(kind, 0) for kind in KINDS},
        "shared_sent_bytes": topic["sharedSentBytes"],
        "shared_received_bytes": topic["sharedReceivedBytes"],
        "shared_cost": round(_money(shared, prices), 6),
        "stored_bytes": topic["storedBytes"],
        "storage_per_month": round(prices.stored(topic["storedBytes"]), 6),
    }


def _forecast(forecast: Mapping[str, Any], answer: Mapping[str, Any], prices: PriceTable) -> dict[str, Any]:
    """Requests an hour, and what they cost, with as many bytes out of the bucket as there were."""
    per_hour = {kind: sum(by_kind.get(kind, 0.0) for by_kind in forecast["requestsPerHour"].values()) for kind in KINDS}
    hours = answer["recentMs"] / HOUR_MS
    received = sum(account["recentReceivedBytes"] for account in answer["accounts"]) / hours
    sent = sum(account["recentSentBytes"] for account in answer["accounts"]) / hours
    an_hour = prices.requests(_kinds(per_hour)) + prices.traffic(sent_bytes=sent, received_bytes=received)
    storage = prices.stored(forecast["storedBytes"])
    return {
        "recorded_ms": forecast["recordedMs"],
        "segment_bytes": forecast["segmentBytes"],
        "seal_age_ms": forecast["sealAgeMs"],
        "raw_bytes_per_hour": round(forecast["rawBytesPerHour"]),
        "segments_per_hour": round(forecast["segmentsPerHour"], 2),
        "packs_per_hour": round(forecast["packsPerHour"], 2),
        "commits_per_hour": round(forecast["commitsPerHour"], 2),
        "requests_per_hour": {kind: round(count, 2) for kind, count in per_hour.items()},
        "by_purpose": forecast["requestsPerHour"],
        "cost_per_hour": round(an_hour, 6),
        "stored_bytes": round(forecast["storedBytes"]),
        "growth_bytes_per_month": round(forecast["growthBytesPerHour"] * _hours_per_month()),
        "storage_per_month": round(storage, 6),
        "cost_per_month": round(an_hour * _hours_per_month() + storage, 6),
    }


def _money(account: Mapping[str, Any], prices: PriceTable) -> float:
    traffic = prices.traffic(sent_bytes=account["sentBytes"], received_bytes=account["receivedBytes"])
    return prices.requests(_kinds(account["requests"])) + traffic


def _kinds(requests: Mapping[str, float]) -> dict[Any, float]:
    from thermocline.tiered.cost import RequestKind

    return {RequestKind(kind): count for kind, count in requests.items()}


def _hours_per_month() -> int:
    from thermocline.tiered.cost import HOURS_PER_MONTH

    return HOURS_PER_MONTH


def _show(app: Application, bill: Mapping[str, Any], prices: PriceTable) -> None:
    out = app.output
    since = duration_text(bill["elapsed_ms"] // 1_000 * 1_000)
    out.text(f"{bill['broker']}: since {since}, in {prices.currency} by the table {prices.name!r}", value={})
    out.rows([each for each in bill["purposes"] if _is_used(each)])
    topics = sorted(bill["topics"], key=lambda each: (-each["cost"] - each["shared_cost"], -each["stored_bytes"]))
    if topics:
        out.text("", value={})
        out.rows([_in_brief(each) for each in topics[:TOPICS_SHOWN]])
        if len(topics) > TOPICS_SHOWN:
            out.note(f"{len(topics) - TOPICS_SHOWN} more topics: name one, or --json for all")
    storage = bill["storage"]
    out.text("", value={})
    out.text(
        f"stored {bytes_text(storage['stored_bytes'])}, waiting to be deleted {bytes_text(storage['removed_bytes'])}:"
        f" {storage['cost_per_month']:.4f} a month",
        value={},
    )
    out.text(
        f"in all {bill['cost_per_month']:.4f} a month, at the rate of the last {_minutes(bill['recent_ms'])}", value={}
    )
    budget = bill["budget"]
    if budget is not None:
        out.text(
            f"request budget {budget['requests_per_hour']} an hour"
            + (f"; seal ages are widened, {budget['waiting_topics']} topics wait" if budget["is_widened"] else "")
            + (f"; {budget['yielded_requests']} beyond it, for local files" if budget["yielded_requests"] else ""),
            value={},
        )
    if bill["forecast"] is not None:
        _show_forecast(app, bill["forecast"], budget)


def _show_forecast(app: Application, forecast: Mapping[str, Any], budget: Mapping[str, Any] | None) -> None:
    out = app.output
    requests = forecast["requests_per_hour"]
    out.text("", value={})
    out.text(
        f"forecast for segments of {bytes_text(forecast['segment_bytes'])} and a seal age of"
        f" {duration_text(forecast['seal_age_ms'])}, from the traffic of {_minutes(forecast['recorded_ms'])}"
        f" ({bytes_text(forecast['raw_bytes_per_hour'])} an hour)",
        value={},
    )
    out.text(
        f"requests an hour: {', '.join(f'{kind} {requests[kind]:.1f}' for kind in KINDS)};"
        f" {forecast['segments_per_hour']:.1f} segments and {forecast['packs_per_hour']:.1f} packs in"
        f" {forecast['commits_per_hour']:.1f} commits",
        value={},
    )
    out.text(
        f"stored {bytes_text(forecast['stored_bytes'])} once expiry has set in,"
        f" and {bytes_text(forecast['growth_bytes_per_month'])} more a month",
        value={},
    )
    out.text(f"in all {forecast['cost_per_month']:.4f} a month, before it grows", value={})
    if budget is not None and requests["put"] + requests["list"] > budget["requests_per_hour"]:
        out.text("more than the request budget: seal ages would be widened", value={})


def _in_brief(topic: Mapping[str, Any]) -> dict[str, Any]:
    """A row that fits a line: all requests, the shared ones apart."""
    return {
        "topic": topic["topic"],
        "requests": sum(topic[kind] for kind in KINDS),
        "shared": sum(topic[f"shared_{kind}"] for kind in KINDS),
        "sent_bytes": topic["sent_bytes"] + topic["shared_sent_bytes"],
        "received_bytes": topic["received_bytes"] + topic["shared_received_bytes"],
        "cost": topic["cost"],
        "shared_cost": topic["shared_cost"],
        "stored_bytes": topic["stored_bytes"],
        "storage_per_month": topic["storage_per_month"],
    }


def _is_used(purpose: Mapping[str, Any]) -> bool:
    return any(purpose[kind] for kind in KINDS)


def _minutes(duration_ms: int) -> str:
    return duration_text(max(1_000, duration_ms // 1_000 * 1_000))
