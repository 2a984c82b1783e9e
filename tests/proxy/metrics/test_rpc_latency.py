"""Times of RPCs in RocketMQ's buckets, and the page that shows them with the other figures of a proxy.

Covers `proxy/metrics/families.py`, `proxy/metrics/metrics_page.py`, `remoting/health/refusal_families.py`.
"""

from __future__ import annotations

import re

from thermocline.proxy.metrics import FAMILIES, Protocol, ProxyFigures, RpcLatency, RpcResult, Traffic, metrics_text
from thermocline.remoting.health import MetricType

FIGURES = ProxyFigures(
    cluster_name="DefaultCluster",
    proxy_name="proxy-1",
    connections=3,
    open_rpcs=4,
    clients={"producer": 1, "push consumer": 2},
    long_polls=5,
    receipt_handles=6,
    receiving_bytes=7,
    limits={"grpcClientsMax": 8},
    quotas={("user", "carol"): 9},
    denials={"authentication": 10, "authorization": 11},
)


def test_a_time_is_counted_in_every_bucket_from_its_own_on() -> None:
    latency = RpcLatency()
    for ms in (0.2, 1.0, 1.1, 99, 5_000):
        latency.add("SendMessage", "ok", RpcResult.SUCCESS, protocol=Protocol.GRPC, is_long_polling=False, ms=ms)
    latency.add("ReceiveMessage", "ok", RpcResult.CANCELED, protocol=Protocol.GRPC, is_long_polling=True, ms=2)
    traffic = Traffic(topics_max=1, pairs_max=1)
    lines = metrics_text(FIGURES, latency, traffic, clusters={"default": True}).decode().splitlines()
    found = {
        re.search(r'le="([^"]+)"', line)[1]: line.rpartition(" ")[2]  # type: ignore[index]
        for line in lines
        if line.startswith("rocketmq_rpc_latency_bucket") and 'request_code="SendMessage"' in line
    }
    assert found == {
        "1": "2",
        "3": "3",
        "5": "3",
        "7": "3",
        "10": "3",
        "100": "4",
        "1000": "4",
        "2000": "4",
        "3000": "4",
        "+Inf": "5",
    }
    (total,) = (line for line in lines if line.startswith("rocketmq_rpc_latency_sum") and "SendMessage" in line)
    assert float(total.rpartition(" ")[2]) == 0.2 + 1.0 + 1.1 + 99 + 5_000
    (count,) = (line for line in lines if line.startswith("rocketmq_rpc_latency_count") and "ReceiveMessage" in line)
    assert count == (
        'rocketmq_rpc_latency_count{node_type="proxy",cluster="DefaultCluster",node_id="proxy-1",proxy_mode="cluster",'
        'protocol_type="grpc",request_code="ReceiveMessage",response_code="ok",is_long_polling="true",'
        'result="cancelled"} 1'
    )


def test_every_figure_is_shown_once_with_help_and_type() -> None:
    latency = RpcLatency()
    latency.add("SendMessage", "ok", RpcResult.SUCCESS, protocol=Protocol.GRPC, is_long_polling=False, ms=1)
    traffic = Traffic(topics_max=1, pairs_max=1)
    traffic.sent(Protocol.GRPC, "Orders", "normal", count=1, size_bytes=2)
    traffic.received(Protocol.REMOTING, "Orders", "billing", is_retry=False, count=3, size_bytes=4)
    text = metrics_text(FIGURES, latency, traffic, clusters={"default": True, "east": False}).decode()
    for name, (metric_type, description) in FAMILIES.items():
        assert f"# HELP {name} {description}\n# TYPE {name} {metric_type}\n{name}" in text
        assert name.endswith("_total") == (metric_type is MetricType.COUNTER)
    assert 'thermocline_proxy_clients{kind="push consumer"} 2\n' in text
    node = 'node_type="proxy",cluster="DefaultCluster",node_id="proxy-1",proxy_mode="cluster"'
    sent = '{NODE,topic="Orders",message_type="normal",is_system="false",protocol_type="grpc"}'.replace("NODE", node)
    assert f"rocketmq_messages_in_total{sent} 1\n" in text
    assert f"rocketmq_throughput_in_total{sent} 2\n" in text
    given = '{NODE,topic="Orders",consumer_group="billing",is_retry="false",is_system="false",protocol_type="remoting"}'
    assert f"rocketmq_messages_out_total{given.replace('NODE', node)} 3\n" in text
    assert f"rocketmq_throughput_out_total{given.replace('NODE', node)} 4\n" in text
    assert "thermocline_proxy_receipt_handles 6\n" in text
    assert 'thermocline_limit_refused_total{limit="grpcClientsMax"} 8\n' in text
    assert 'thermocline_quota_refused_total{kind="user",name="carol"} 9\n' in text
    assert 'thermocline_access_denied_total{stage="authorization"} 11\n' in text
