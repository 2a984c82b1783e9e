"""Health: the port that shows the broker's state to load balancers, monitoring and operators.

start    the port answers, if one is configured
close    the port is closed
"""

import logging
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack

from thermocline.auth.actions import Action
from thermocline.auth.readers import is_reader
from thermocline.auth.resources import cluster_resource
from thermocline.auth.rights import Right
from thermocline.broker.assembly.cold_tier import ColdTier
from thermocline.broker.assembly.helper_links import HelperLinks
from thermocline.broker.assembly.parts import BrokerParts
from thermocline.broker.assembly.replicas import Replicas
from thermocline.broker.stats import MetricsPage
from thermocline.remoting.connections import Gate
from thermocline.remoting.health import HealthServer, ReaderCheck

logger = logging.getLogger(__name__)

REQUEST_CHARACTERS_MAX = 64
"""Of a request, in the audit log."""


async def start_health(
    parts: BrokerParts,
    helpers: HelperLinks,
    tier: ColdTier,
    replicas: Replicas,
    *,
    gate: Gate,
    is_closing: Callable[[], bool],
    role_error: Callable[[], str],
    resources: AsyncExitStack,
) -> None:
    """Answer until `resources` close; does nothing when no port is configured. `gate`: of the broker's port.
    `role_error`: why the broker does not have the role that it should have.

    Raises:
        OSError: The port is taken.
    """
    config = parts.base.settings.broker
    if config.health_port < 0:
        return
    metrics = MetricsPage(
        settings=parts.base.settings,
        store=parts.base.store,
        topics=parts.tables.topics,
        offsets=parts.tables.offsets,
        stats=parts.base.stats,
        remaining=parts.reads.remaining,
        hub=helpers.hub,
        helpers=helpers.helpers.statuses,
        committed_offset=lambda: tier.gate.now().committed_offset,
        is_fenced=lambda: bool(tier.fence.reason),
        dropped=tier.dropped.live,
        limits=parts.base.limits,
        quotas=parts.tables.quotas,
        ha_runtime_info=replicas.runtime_info,
        controlled=lambda: replicas.controlled_figures(has_role_failed=bool(role_error())),
        denials=lambda: parts.access.audit.denials if parts.access is not None else {},
    )
    health = HealthServer(
        lambda: probe(parts, tier, is_closing=is_closing(), role_error=role_error()),
        metrics.text,
        may_read=reader_check(parts),
        gate=gate,
    )
    port = await health.start(config.health_host, config.health_port)
    resources.push_async_callback(health.close)
    logger.info("health endpoint port=%d", port)


def reader_check(parts: BrokerParts) -> ReaderCheck | None:
    """Who may read the port: a user that may read the cluster's state; None without access control."""
    if parts.access is None:
        return None
    control = parts.access.control
    authorizes = parts.base.settings.auth.authorization_enabled
    needed = Right(cluster_resource(parts.base.settings.broker.cluster_name), (Action.GET,))

    async def may_read(username: str, key: str, address: str, request: str) -> bool:
        return is_reader(
            control,
            username=username,
            key=key,
            right=needed,
            address=address,
            request=request[:REQUEST_CHARACTERS_MAX],
            authorizes=authorizes,
        )

    return may_read


def probe(
    parts: BrokerParts, tier: ColdTier, *, is_closing: bool, role_error: str = ""
) -> tuple[bool, Mapping[str, object]]:
    """Whether the broker takes messages, and the details that are shown.

    `cold` says how the cold tier is, on which taking messages does not depend.
    """
    log = parts.base.store.commit_log
    refusal = tier.fence.reason or log.unwanted_refusal or role_error or ("stopping" if is_closing else "")
    cold = tier.reads.health()
    details = {
        "status": "unavailable" if refusal else "degraded" if cold.is_impaired else "ok",
        "address": parts.base.advertised_address,
        "appendOffset": log.append_offset,
        "flushOffset": log.flush_offset,
        "refusal": refusal,
        "cold": cold.fields(),
    }
    return not refusal, details
