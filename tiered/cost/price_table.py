"""PriceTable: what an object store charges, read from a TOML file.

    name = "example"
    currency = "USD"
    [per_1000_requests]
    put = 0.005             # also a conditional create, and each part of a multipart upload
    get = 0.0004            # also a range, and a head
    list = 0.005            # each page of 1000 names
    delete = 0.0            # each call, however many names it has
    [per_gib]
    sent = 0.0              # into the bucket
    received = 0.0          # out of it
    [per_gib_month]
    stored = 0.023

Every price must be there, as a number that is not negative; other names are refused, so that a misspelt price is not
taken for zero. Without a file, `example_prices.toml` beside this module applies: an example and no offer.

    month    30 days: what a rate is multiplied by, so that months are comparable
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from thermocline.remoting.errors import InvalidRequestError
from thermocline.tiered.cost.request_kind import RequestKind

GIB = 1 << 30
HOURS_PER_MONTH = 30 * 24
EXAMPLE_PATH = Path(__file__).with_name("example_prices.toml")

_NUMBERS: Mapping[str, tuple[str, ...]] = {
    "per_1000_requests": tuple(kind.value for kind in RequestKind),
    "per_gib": ("sent", "received"),
    "per_gib_month": ("stored",),
}


class PriceTable(msgspec.Struct, frozen=True, kw_only=True):
    """Prices in `currency`."""

    name: str
    currency: str
    per_1000_requests: Mapping[RequestKind, float]
    per_gib_sent: float
    per_gib_received: float
    per_gib_month_stored: float

    @classmethod
    def example(cls) -> PriceTable:
        """The prices used without a price file."""
        return cls.load(EXAMPLE_PATH)

    @classmethod
    def load(cls, path: Path) -> PriceTable:
        """Read a price file.

        Raises:
            InvalidRequestError: It cannot be read, or is no price table.
        """
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidRequestError("the price table cannot be read", file=str(path), reason=str(error)) from error
        return cls.parse(text, source=str(path))

    @classmethod
    def parse(cls, text: str, *, source: str) -> PriceTable:
        """Read the text of a price file; `source` names it in errors. Raises as `load`."""
        try:
            document = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise InvalidRequestError("the price table is no TOML", file=source, reason=str(error)) from error
        unknown = document.keys() - {"name", "currency", *_NUMBERS}
        if unknown:
            raise InvalidRequestError("a price table has no such name", file=source, name=min(unknown))
        prices = {table: _numbers(document, table, names, source=source) for table, names in _NUMBERS.items()}
        return cls(
            name=_text(document, "name", source=source),
            currency=_text(document, "currency", source=source),
            per_1000_requests={RequestKind(name): price for name, price in prices["per_1000_requests"].items()},
            per_gib_sent=prices["per_gib"]["sent"],
            per_gib_received=prices["per_gib"]["received"],
            per_gib_month_stored=prices["per_gib_month"]["stored"],
        )

    def requests(self, counts: Mapping[RequestKind, float]) -> float:
        """The price of so many requests of each kind."""
        return sum(self.per_1000_requests[kind] * count / 1_000 for kind, count in counts.items())

    def traffic(self, *, sent_bytes: float, received_bytes: float) -> float:
        """The price of bytes into the bucket and out of it."""
        return self.per_gib_sent * sent_bytes / GIB + self.per_gib_received * received_bytes / GIB

    def stored(self, size_bytes: float, *, hours: float = HOURS_PER_MONTH) -> float:
        """The price of keeping so much for so long."""
        return self.per_gib_month_stored * size_bytes / GIB * hours / HOURS_PER_MONTH


def _text(document: Mapping[str, Any], name: str, *, source: str) -> str:
    value = document.get(name)
    if not isinstance(value, str) or not value:
        raise InvalidRequestError("a price table says its name and currency", file=source, missing=name)
    return value


def _numbers(document: Mapping[str, Any], table: str, names: tuple[str, ...], *, source: str) -> dict[str, float]:
    values = document.get(table)
    if not isinstance(values, dict):
        raise InvalidRequestError("a price table has all its parts", file=source, missing=table)
    unknown = values.keys() - set(names)
    if unknown:
        raise InvalidRequestError("a price table has no such price", file=source, name=f"{table}.{min(unknown)}")
    prices: dict[str, float] = {}
    for name in names:
        value = values.get(name)
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
            raise InvalidRequestError("a price is a number from 0", file=source, name=f"{table}.{name}", value=value)
        prices[name] = float(value)
    return prices
