"""The check of mixed load once it has ended: topics and receptions by the rules of load_rules.py, and their counts."""

from __future__ import annotations

import logging

from tests.interop.load_cluster import LoadCluster
from tests.interop.load_journal import JournalTail, Received
from tests.interop.load_mix import TOPICS
from tests.interop.load_progress import LoadProgress
from tests.interop.load_rules import Events, GroupReceptions, StoredMessages, describe

logger = logging.getLogger(__name__)


def check_load(cluster: LoadCluster, progress: LoadProgress, begun: dict[str, int], events: Events) -> None:
    """Fail on what breaks a rule, in topics and at groups; logs the figures. No producer sends any more."""
    tails = [JournalTail(cluster.journal_topic(topic)) for topic in TOPICS]
    stored = StoredMessages(
        (Received.read(line) for tail in tails for line in tail.new_lines()), progress.sent, begun, events
    )
    log_sent(progress, begun, events)
    logger.info("stored: %s", describe(stored.check()))
    for group in cluster.groups:
        receptions = GroupReceptions(group, progress.received[group.name], stored, events)
        found = receptions.check()
        if group.is_orderly:
            found["went back"] = receptions.check_order()
        logger.info("%s: %s", group.name, describe(found))
        assert found["messages"], group.name


def log_sent(progress: LoadProgress, begun: dict[str, int], events: Events) -> None:
    outcomes = [sent for of_producer in progress.sent.values() for sent in of_producer.values()]
    acknowledged = [sent for sent in outcomes if sent.is_acknowledged]
    logger.info(
        "sent: %d, acknowledged %d, failed %d, without an outcome %d; away for, and without a send for, in ms: %s",
        sum(begun.values()),
        len(acknowledged),
        len(outcomes) - len(acknowledged),
        sum(begun.values()) - len(outcomes),
        [
            (
                outage.back_ms - outage.killed_ms,
                min(sent.answered_ms for sent in acknowledged if sent.sent_ms >= outage.back_ms) - outage.killed_ms,
            )
            for outage in events.outages
        ],
    )
