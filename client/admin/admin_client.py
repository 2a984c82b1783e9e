"""AdminClient: the blocking half of `AsyncAdminClient`: everything that operators do, as methods.

with AdminClient(namesrv="127.0.0.1:9876") as admin:
    admin.create_topic("orders", queue_nums=8)
    for row in admin.group_progress("billing"):
        print(row.queue, row.lag)
"""

from __future__ import annotations

from thermocline.client.admin.async_admin_client import AsyncAdminClient
from thermocline.client.blocking import BlockingHalf, blocking
from thermocline.client.options import ClientOptions, option_values

__all__ = ["AdminClient"]


class AdminClient(ClientOptions, BlockingHalf[AsyncAdminClient]):
    """See the module. Any number of threads may share one."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._adopt(AsyncAdminClient(**option_values(self)), name="thermocline admin client")

    create_topic = blocking(AsyncAdminClient.create_topic)
    update_topic = blocking(AsyncAdminClient.update_topic)
    delete_topic = blocking(AsyncAdminClient.delete_topic)
    list_topics = blocking(AsyncAdminClient.list_topics)
    topic_config = blocking(AsyncAdminClient.topic_config)
    topic_route = blocking(AsyncAdminClient.topic_route)
    topic_stats = blocking(AsyncAdminClient.topic_stats)
    topic_consumers = blocking(AsyncAdminClient.topic_consumers)
    static_topic = blocking(AsyncAdminClient.static_topic)
    plan_static_topic = blocking(AsyncAdminClient.plan_static_topic)
    plan_static_move = blocking(AsyncAdminClient.plan_static_move)
    apply_static_plan = blocking(AsyncAdminClient.apply_static_plan)

    create_group = blocking(AsyncAdminClient.create_group)
    update_group = blocking(AsyncAdminClient.update_group)
    delete_group = blocking(AsyncAdminClient.delete_group)
    list_groups = blocking(AsyncAdminClient.list_groups)
    group_config = blocking(AsyncAdminClient.group_config)
    group_progress = blocking(AsyncAdminClient.group_progress)
    reset_offsets = blocking(AsyncAdminClient.reset_offsets)
    reset_offset = blocking(AsyncAdminClient.reset_offset)
    set_consumer_offset = blocking(AsyncAdminClient.set_consumer_offset)
    clone_group_offsets = blocking(AsyncAdminClient.clone_group_offsets)
    group_places = blocking(AsyncAdminClient.group_places)
    hand_off = blocking(AsyncAdminClient.hand_off)
    set_request_mode = blocking(AsyncAdminClient.set_request_mode)
    request_modes = blocking(AsyncAdminClient.request_modes)
    consumer_connections = blocking(AsyncAdminClient.consumer_connections)
    producer_connections = blocking(AsyncAdminClient.producer_connections)
    list_producers = blocking(AsyncAdminClient.list_producers)
    proxied_clients = blocking(AsyncAdminClient.proxied_clients)
    consumer_running_info = blocking(AsyncAdminClient.consumer_running_info)
    consume_message_directly = blocking(AsyncAdminClient.consume_message_directly)

    query_by_key = blocking(AsyncAdminClient.query_by_key)
    query_by_unique_key = blocking(AsyncAdminClient.query_by_unique_key)
    query_by_id = blocking(AsyncAdminClient.query_by_id)
    view_message = blocking(AsyncAdminClient.view_message)
    message_trace = blocking(AsyncAdminClient.message_trace)
    resume_check_half_message = blocking(AsyncAdminClient.resume_check_half_message)
    view_by_offset = blocking(AsyncAdminClient.view_by_offset)
    pull = blocking(AsyncAdminClient.pull)
    pull_topic = blocking(AsyncAdminClient.pull_topic)
    min_offset = blocking(AsyncAdminClient.min_offset)
    max_offset = blocking(AsyncAdminClient.max_offset)
    search_offset = blocking(AsyncAdminClient.search_offset)
    earliest_store_time = blocking(AsyncAdminClient.earliest_store_time)

    cluster_info = blocking(AsyncAdminClient.cluster_info)
    broker_runtime_info = blocking(AsyncAdminClient.broker_runtime_info)
    runtime_infos = blocking(AsyncAdminClient.runtime_infos)
    broker_traffic = blocking(AsyncAdminClient.broker_traffic)
    broker_config = blocking(AsyncAdminClient.broker_config)
    update_broker_config = blocking(AsyncAdminClient.update_broker_config)
    clean_broker = blocking(AsyncAdminClient.clean_broker)
    namesrv_config = blocking(AsyncAdminClient.namesrv_config)
    update_namesrv_config = blocking(AsyncAdminClient.update_namesrv_config)
    wipe_write_permission = blocking(AsyncAdminClient.wipe_write_permission)
    add_write_permission = blocking(AsyncAdminClient.add_write_permission)
    put_kv = blocking(AsyncAdminClient.put_kv)
    get_kv = blocking(AsyncAdminClient.get_kv)
    delete_kv = blocking(AsyncAdminClient.delete_kv)
    list_kv = blocking(AsyncAdminClient.list_kv)
    invoke = blocking(AsyncAdminClient.invoke)

    cold_reads = blocking(AsyncAdminClient.cold_reads)
    set_cold_read_limit = blocking(AsyncAdminClient.set_cold_read_limit)

    tier_status = blocking(AsyncAdminClient.tier_status)
    tier_seal = blocking(AsyncAdminClient.tier_seal)
    tier_purge = blocking(AsyncAdminClient.tier_purge)
    tier_explain = blocking(AsyncAdminClient.tier_explain)
    tier_cost = blocking(AsyncAdminClient.tier_cost)
    forecast_tier_cost = blocking(AsyncAdminClient.forecast_tier_cost)
    start_tier_scrub = blocking(AsyncAdminClient.start_tier_scrub)
    tier_scrub_state = blocking(AsyncAdminClient.tier_scrub_state)
    preview_ttl = blocking(AsyncAdminClient.preview_ttl)
    set_ttl = blocking(AsyncAdminClient.set_ttl)
    prove_ttl = blocking(AsyncAdminClient.prove_ttl)

    create_user = blocking(AsyncAdminClient.create_user)
    update_user = blocking(AsyncAdminClient.update_user)
    delete_user = blocking(AsyncAdminClient.delete_user)
    users = blocking(AsyncAdminClient.users)
    set_acl = blocking(AsyncAdminClient.set_acl)
    copy_acl = blocking(AsyncAdminClient.copy_acl)
    delete_acl = blocking(AsyncAdminClient.delete_acl)
    acls = blocking(AsyncAdminClient.acls)
    check_acl = blocking(AsyncAdminClient.check_acl)

    controller_metadata = blocking(AsyncAdminClient.controller_metadata)
    controller_status = blocking(AsyncAdminClient.controller_status)
    replica_sets = blocking(AsyncAdminClient.replica_sets)
    replica_states = blocking(AsyncAdminClient.replica_states)
    elect_master = blocking(AsyncAdminClient.elect_master)
    clean_broker_data = blocking(AsyncAdminClient.clean_broker_data)
    controller_config = blocking(AsyncAdminClient.controller_config)
    update_controller_config = blocking(AsyncAdminClient.update_controller_config)
