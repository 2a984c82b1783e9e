"""Families of metrics: every name that a broker shows at GET /metrics, with its type and what it says.

    thermocline_..._total      counts up, from 0 at each start of the process that counts
    thermocline_...            as it is now; names end in their unit (bytes, seconds, messages)

Those of the tier process are missing while that is away, and in a broker without a cold tier. `topic` is "*" for all
topics that have no label of their own (see labelled_topics.py).
"""

from __future__ import annotations

from thermocline.remoting.health import REFUSAL_FAMILIES, Families, MetricType

FAMILIES: Families = {
    # -- hot process
    "thermocline_broker_info": (MetricType.GAUGE, "Always 1; labels name the broker and its cluster."),
    "thermocline_broker_writable": (
        MetricType.GAUGE,
        "1 while sends are taken, 0 while they are refused.",
    ),
    "thermocline_broker_fenced": (MetricType.GAUGE, "1 when another broker has taken over the cold tier."),
    "thermocline_helper_connected": (MetricType.GAUGE, "1 while a helper process is connected."),
    "thermocline_helper_restarts_total": (MetricType.COUNTER, "How often a helper process was started again."),
    "thermocline_disk_used_ratio": (MetricType.GAUGE, "How full the log's file system is, 0 to 1."),
    "thermocline_log_append_offset_bytes": (MetricType.GAUGE, "End of the log."),
    "thermocline_log_flush_offset_bytes": (MetricType.GAUGE, "Where the durable part of the log ends."),
    "thermocline_log_min_offset_bytes": (MetricType.GAUGE, "Where the local part of the log begins."),
    "thermocline_log_committed_offset_bytes": (MetricType.GAUGE, "Everything in the log before it is in the bucket."),
    "thermocline_replica_connections": (MetricType.GAUGE, "Slaves that are connected, of a master that takes slaves."),
    "thermocline_replica_gap_bytes": (MetricType.GAUGE, "Bytes of the log that a slave has not confirmed, by slave."),
    "thermocline_replica_master_epoch": (MetricType.GAUGE, "Under a controller: the newest epoch of the log."),
    "thermocline_replica_in_sync": (
        MetricType.GAUGE,
        "Under a controller: brokers of the SyncStateSet, of its master, itself among them.",
    ),
    "thermocline_replica_confirm_offset_bytes": (
        MetricType.GAUGE,
        "Under a controller: the log before it is on all brokers of the SyncStateSet.",
    ),
    "thermocline_replica_role_failed": (
        MetricType.GAUGE,
        "Under a controller: 1 while the broker does not have the role that it was given.",
    ),
    "thermocline_dropped_messages": (MetricType.GAUGE, "Messages of live topics lost to a full disk: see drop-oldest."),
    "thermocline_put_messages_total": (MetricType.COUNTER, "Messages stored, by topic."),
    "thermocline_put_bytes_total": (MetricType.COUNTER, "Record bytes stored, by topic."),
    "thermocline_put_failed_total": (MetricType.COUNTER, "Messages that the store refused."),
    "thermocline_get_messages_total": (MetricType.COUNTER, "Messages handed out."),
    "thermocline_get_bytes_total": (MetricType.COUNTER, "Record bytes handed out."),
    **REFUSAL_FAMILIES,
    "thermocline_consumer_lag_messages": (MetricType.GAUGE, "Messages a group has not consumed yet, by topic."),
    # -- tier process
    "thermocline_tier_waiting_bytes": (MetricType.GAUGE, "Bytes that are not in the bucket yet, by topic."),
    "thermocline_tier_waiting_seconds": (
        MetricType.GAUGE,
        "Age of the oldest message that is not in the bucket yet, by topic: what a lost disk would cost.",
    ),
    "thermocline_tier_stored_bytes": (MetricType.GAUGE, "Bytes of live objects, by topic."),
    "thermocline_tier_removed_bytes": (MetricType.GAUGE, "Bytes that wait for the end of the grace period."),
    "thermocline_tier_ledger_version": (MetricType.GAUGE, "Newest version committed."),
    "thermocline_tier_committed_timestamp_seconds": (MetricType.GAUGE, "When that was, in seconds since 1970."),
    "thermocline_tier_outage_seconds": (MetricType.GAUGE, "How long the object store has not answered; 0: it does."),
    "thermocline_tier_seal_age_widened": (MetricType.GAUGE, "1 while the request budget widens seal ages."),
    "thermocline_tier_request_budget_left": (MetricType.GAUGE, "Requests that the budget allows just now."),
    "thermocline_tier_request_budget_yielded_total": (
        MetricType.COUNTER,
        "Requests made beyond the budget because local files had to go.",
    ),
    "thermocline_tier_scrub_broken": (MetricType.GAUGE, "What scrubs found broken, and is not healed or gone."),
    "thermocline_tier_scrub_timestamp_seconds": (
        MetricType.GAUGE,
        "When the last requested scrub ended, since 1970; without --deep it read no bytes.",
    ),
    "thermocline_tier_scrub_bytes_per_day": (
        MetricType.GAUGE,
        "How much is read by itself to find damage, at most (coldScrubBytesPerDay); 0: nothing is.",
    ),
    "thermocline_tier_scrub_read_bytes_total": (MetricType.COUNTER, "Bytes read by itself to find damage."),
    "thermocline_tier_scrub_unread_bytes": (
        MetricType.GAUGE,
        "Bytes of live objects that the present pass has not read yet.",
    ),
    "thermocline_tier_scrub_days_needed": (
        MetricType.GAUGE,
        "Days in which every byte is read once by coldScrubBytesPerDay; above 30 it is too small.",
    ),
    "thermocline_tier_scrub_pass_timestamp_seconds": (
        MetricType.GAUGE,
        "When the last pass through every byte began, since 1970.",
    ),
    "thermocline_tier_scrub_whole_timestamp_seconds": (
        MetricType.GAUGE,
        "When the last pass that read every byte ended, since 1970.",
    ),
    "thermocline_store_requests_total": (MetricType.COUNTER, "Requests to the object store, by purpose and kind."),
    "thermocline_store_errors_total": (
        MetricType.COUNTER,
        "Requests that failed (not-found is an answer), by purpose.",
    ),
    "thermocline_topic_store_requests_total": (
        MetricType.COUNTER,
        "Requests to the object store, by topic and kind: for its own objects, and its share of shared ones.",
    ),
    "thermocline_topic_store_errors_total": (
        MetricType.COUNTER,
        "Requests that failed, by topic, its share of shared ones with them.",
    ),
    "thermocline_store_sent_bytes_total": (MetricType.COUNTER, "Bytes sent to the object store, by purpose."),
    "thermocline_store_received_bytes_total": (MetricType.COUNTER, "Bytes received from it, by purpose."),
    "thermocline_cache_bytes": (MetricType.GAUGE, "Decompressed frames kept for cold reads."),
    "thermocline_cache_limit_bytes": (MetricType.GAUGE, "Most bytes of these (coldCacheBytes)."),
    "thermocline_cache_hits_total": (MetricType.COUNTER, "Frames that cold reads found in the cache."),
    "thermocline_cache_misses_total": (MetricType.COUNTER, "Frames that cold reads had to wait for."),
}
