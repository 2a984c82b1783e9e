"""FakeFilters: which messages a subscription lets through at a fake broker; tags by their hash, SQL92 as brokers do."""

from __future__ import annotations

from collections.abc import Callable

from thermocline.client.testing.fake_store import StoredMessage
from thermocline.filters import CompiledFilter, CompiledFilterCache
from thermocline.remoting.bodies import EXPRESSION_SQL92, EXPRESSION_TAG, SubscriptionData
from thermocline.remoting.errors import MQError, SubscriptionParseError

__all__ = ["FakeFilters"]


class FakeFilters:
    """See the module. `has_property_filter` is what `enablePropertyFilter` is to a broker."""

    def __init__(self, *, has_property_filter: bool) -> None:
        self._has_property_filter = has_property_filter
        self._cache = CompiledFilterCache()

    def check(self, subscription: SubscriptionData) -> None:
        """Pass a subscription that can be served.

        Raises:
            SubscriptionParseError: Its expression is none.
            MQError: Only tags are served.
        """
        if subscription.expression_type not in ("", EXPRESSION_TAG):
            self._compile(subscription)

    def of(self, subscription: SubscriptionData) -> Callable[[StoredMessage], bool]:
        """Which messages the subscription wants; errors as those of `check`."""
        if subscription.expression_type in ("", EXPRESSION_TAG):
            codes = subscription.code_set
            return lambda stored: not codes or stored.tags_code in codes
        compiled = self._compile(subscription)
        return lambda stored: compiled.matches(stored.decode().properties)

    def _compile(self, subscription: SubscriptionData) -> CompiledFilter:
        expression_type = subscription.expression_type
        if not self._has_property_filter:
            raise MQError(f"The broker does not support consumer to filter message by {expression_type}")
        if expression_type != EXPRESSION_SQL92:
            raise SubscriptionParseError(f"no type of expression: {expression_type}")
        return self._cache.compile(subscription.sub_string)
