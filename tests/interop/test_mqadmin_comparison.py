"""Every mqadmin command of a single master prints here what it prints of the official broker in the same state.

The state is made by one script (mqadmin_pair.py), then each command runs against both, one after another in the order
of `COMMANDS`, so that both states stay the same; figures that no two runs share are masked. `DIFFERENT` names what is
left, with the reason; it is expected strictly, so that a line whose reason is gone has to go too.
`docs/compatibility.md` lists the commands and is held against this list.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.interop.cluster import OFFICIAL, THERMOCLINE, official_cluster, thermocline_cluster
from tests.interop.java_agent import JavaAgent
from tests.interop.mqadmin_pair import GROUP, OFFLINE_GROUP, PRODUCER_GROUP, TOPIC, Pair, Side, begin, prepare
from tests.waiting import wait_until
from tooling.official_rocketmq import OfficialSoftware

pytestmark = [pytest.mark.java, pytest.mark.xdist_group("mqadmin-pair")]

CLUSTER = "DefaultCluster"
MONITOR_GROUP = "__MONITOR_CONSUMER"
FILES: Mapping[str, object] = {
    "topics.json": [
        {"topicName": "PairListed1", "readQueueNums": 3, "writeQueueNums": 3, "perm": 6},
        {"topicName": "PairListed2", "readQueueNums": 2, "writeQueueNums": 2, "perm": 4},
    ],
    "groups.json": [
        {"groupName": "PairListedGroup1", "retryMaxTimes": 3},
        {"groupName": "PairListedGroup2", "consumeEnable": False},
    ],
}


@dataclass(frozen=True, slots=True)
class Command:
    """One run of a command; `{broker}` and the like in its arguments are filled in for each side."""

    line: str
    until: str = ""
    """A pattern of the output that is meant, where a broker learns it a moment later."""
    keeps: Callable[[list[str]], list[str]] | None = None
    """What of the masked lines is compared; all without it."""

    @property
    def name(self) -> str:
        return self.line.split()[0]


def names_only(lines: list[str]) -> list[str]:
    """Of lines `name : value` or `name = value` the names."""
    return sorted(re.split(r"[:=]", line, maxsplit=1)[0].strip() for line in lines)


def without_numbers(lines: list[str]) -> list[str]:
    """The lines with every number masked: statistics of the last minutes, round trips."""
    return [re.sub(r"\d+", "N", line) for line in lines]


def without_consume_rate(lines: list[str]) -> list[str]:
    """Rows of groups without their messages a second, the last column but one."""
    return [re.sub(r" \d+ (\d+)$", r" RATE \1", line) for line in lines]


def without_those_who_left(lines: list[str]) -> list[str]:
    """The lines without numbers, and without the group that is away: it counts as active for a minute after it left."""
    return [line for line in without_numbers(lines) if OFFLINE_GROUP not in line]


def first_words(lines: list[str]) -> list[str]:
    """The first word of each line, once."""
    return sorted({line.split()[0] for line in lines})


COMMANDS = (
    # cluster, topics
    Command("clusterList", keeps=without_numbers),
    Command("clusterList -m"),
    Command("topicList"),
    Command(f"topicList -c {CLUSTER}"),
    Command(f"topicRoute -t {TOPIC}"),
    Command(f"topicRoute -t {TOPIC} -l"),
    Command("topicRoute -t NoSuchTopic"),
    Command(f"topicStatus -t {TOPIC}"),
    Command("topicStatus -t NoSuchTopic"),
    Command(f"topicClusterList -t {TOPIC}"),
    Command("updateTopic -b {broker} -t PairMade1 -r 4 -w 4"),
    Command("updateTopic -b {broker} -t PairMade1 -r 8 -w 2 -p 4"),
    Command(f"updateTopic -c {CLUSTER} -t PairMade2 -a +message.type=FIFO"),
    Command(f"updateTopic -c {CLUSTER} -t PairMade2 -a -message.type"),
    Command(f"updateTopic -c {CLUSTER} -t PairMade3 -a +no.such=1"),
    Command(f"updateTopic -c {CLUSTER} -t PairMade3 -a message.type=FIFO"),
    Command("updateTopic -b {broker} -t PairMade4 -o true"),
    Command(f"updateTopic -c {CLUSTER} -t no/such*name"),
    Command("updateTopic -b {broker} -t SCHEDULE_TOPIC_XXXX"),
    Command("topicRoute -t PairMade1", until='"perm":4'),
    Command("updateTopicPerm -b {broker} -t PairMade1 -p 6"),
    Command(f"updateTopicPerm -c {CLUSTER} -t PairMade1 -p 4"),
    Command("updateTopicPerm -b {broker} -t NoSuchTopic -p 6"),
    Command("updateTopicList -b {broker} -f {directory}/topics.json"),
    Command("topicRoute -t PairListed1", until='"readQueueNums":3'),
    Command("updateOrderConf -m put -t PairMade2 -v broker-a:4"),
    Command("updateOrderConf -m get -t PairMade2"),
    Command("updateOrderConf -m delete -t PairMade2"),
    Command("updateOrderConf -m get -t PairMade2"),
    Command(f"allocateMQ -t {TOPIC} -i 10.0.0.1,10.0.0.2"),
    # consumer groups
    Command("updateSubGroup -b {broker} -g PairGroup1 -s true -m true -d false -q 2 -r 5"),
    Command(f"updateSubGroup -c {CLUSTER} -g PairGroup2 -o true -i 0 -w 1 -a true"),
    Command(
        "updateSubGroup -b {broker} -g PairGroup3 -p "
        '{{"type":"EXPONENTIAL","exponentialRetryPolicy":{{"initial":1000,"max":60000,"multiplier":2}}}}'
    ),
    Command("updateSubGroup -b {broker} -g no/such*name"),
    Command("updateSubGroupList -b {broker} -f {directory}/groups.json"),
    Command("getConsumerConfig -g PairGroup1"),
    Command("getConsumerConfig -g PairGroup3"),
    Command("getConsumerConfig -g PairListedGroup2"),
    Command("getConsumerConfig -g NoSuchGroup"),
    Command(f"setConsumeMode -b {{broker}} -t {TOPIC} -g {OFFLINE_GROUP} -m POP -q 8"),
    Command(f"setConsumeMode -c {CLUSTER} -t {TOPIC} -g {OFFLINE_GROUP} -m PULL"),
    Command(f"consumerProgress -g {GROUP}", until="%RETRY%"),
    Command(f"consumerProgress -g {GROUP} -t {TOPIC} -s true"),
    Command(f"consumerProgress -g {OFFLINE_GROUP}"),
    Command("consumerProgress -g NoSuchGroup"),
    Command("consumerProgress", keeps=without_consume_rate),
    Command(f"consumerStatus -g {GROUP}"),
    Command(f"consumerStatus -g {GROUP} -i {{client}}", keeps=first_words),
    Command(f"consumerStatus -g {GROUP} -i {{client}} -s", keeps=lambda lines: first_words(lines)[:1]),
    Command("consumerStatus -g NoSuchGroup"),
    # connections
    Command(f"consumerConnection -g {GROUP}"),
    Command(f"consumerConnection -g {GROUP} -b {{broker}}"),
    Command("consumerConnection -g NoSuchGroup"),
    Command(f"producerConnection -g {PRODUCER_GROUP} -t {TOPIC}"),
    Command(f"producerConnection -g NoSuchGroup -t {TOPIC}"),
    Command("producer -b {broker}"),
    # offsets
    Command(f"cloneGroupOffset -s {GROUP} -d PairCloned -t {TOPIC} -o true"),
    Command("consumerProgress -g PairCloned"),
    Command(f"resetOffsetByTime -g {OFFLINE_GROUP} -t {TOPIC} -s 1700000000000"),
    Command(f"resetOffsetByTime -g {OFFLINE_GROUP} -t {TOPIC} -s now"),
    Command(f"resetOffsetByTime -g {OFFLINE_GROUP} -t {TOPIC} -s 2020-01-01#00:00:00:000"),
    Command(f"resetOffsetByTime -g {OFFLINE_GROUP} -t {TOPIC} -s now -b {{broker}} -q 1 -o 2"),
    Command(f"resetOffsetByTime -g {OFFLINE_GROUP} -t {TOPIC} -s now -b {{broker}} -q 1 -o 99"),
    Command(f"resetOffsetByTime -g {GROUP} -t {TOPIC} -s now"),
    Command(f"resetOffsetByTime -g {GROUP} -t NoSuchTopic -s now"),
    Command(f"resetOffsetByTime -g NoSuchGroup -t {TOPIC} -s now"),
    Command(f"consumerProgress -g {OFFLINE_GROUP}"),
    Command(f"skipAccumulatedMessage -g {OFFLINE_GROUP} -t {TOPIC}"),
    Command(f"consumerProgress -g {OFFLINE_GROUP}"),
    # messages
    Command(f"queryMsgById -t {TOPIC} -i {{offset_id}}"),
    Command(f"queryMsgById -t {TOPIC} -i {{offset_id}} -g {GROUP} -d {{client}}"),
    Command(f"queryMsgByKey -t {TOPIC} -k {{key}}", until=r"\n[0-9A-F]{32}"),
    Command(f"queryMsgByKey -t {TOPIC} -k missing"),
    Command(f"queryMsgByUniqueKey -t {TOPIC} -i {{unique}}", until="Topic: "),
    Command(f"queryMsgByUniqueKey -t {TOPIC} -i {{unique}} -a", until="Topic: "),
    Command(f"queryMsgByUniqueKey -t {TOPIC} -i {{unique}} -g {GROUP} -d {{client}}"),
    Command(f"queryMsgByOffset -t {TOPIC} -b broker-a -i 0 -o 1"),
    Command(f"queryMsgByOffset -t {TOPIC} -b broker-a -i 0 -o 99"),
    Command("queryMsgTraceById -i {unique} -t RMQ_SYS_TRACE_TOPIC"),
    Command(f"printMsg -t {TOPIC} -d true"),
    Command(f"printMsg -t {TOPIC} -s T1"),
    Command(f"printMsgByQueue -t {TOPIC} -a broker-a -i 0 -p true -d true -f true"),
    Command(f"sendMessage -t {TOPIC} -p hello -k admkey -c admtag -b broker-a -i 2"),
    Command(f"consumeMessage -t {TOPIC} -b broker-a -i 0 -o 0 -c 3"),
    Command(f"consumeMessage -t {TOPIC} -g PairAdmin -b broker-a -i 1 -c 2"),
    # broker
    Command("brokerStatus -b {broker}", keeps=names_only),
    Command(f"brokerStatus -c {CLUSTER}", keeps=names_only),
    # the message that has just been sent is consumed, and that said, some seconds later
    Command("brokerConsumeStats -b {broker} -o false -t 5000 -l 0", until=rf"{GROUP}\s+broker-a\s+2\s+6\s+6\s"),
    Command("brokerConsumeStats -b {broker} -o true -t 5000 -l 0"),
    Command("getBrokerConfig -b {broker}", keeps=names_only),
    Command("updateBrokerConfig -b {broker} -k fileReservedTime -v 48"),
    Command(f"updateBrokerConfig -c {CLUSTER} -k fileReservedTime -v 49"),
    Command("updateBrokerConfig -b {broker} -k noSuchKey -v 1"),
    Command("updateBrokerConfig -b {broker} -k brokerConfigPath -v /nowhere"),
    Command("cleanExpiredCQ -b {broker}"),
    Command("cleanUnusedTopic -b {broker}"),
    Command("deleteExpiredCommitLog -b {broker}"),
    Command("getBrokerEpoch -b broker-a"),
    Command("resetMasterFlushOffset -b {broker} -o 0"),
    Command("updateColdDataFlowCtrGroupConfig -b {broker} -g PairCold -v 1000"),
    Command("getColdDataFlowCtrInfo -b {broker}"),
    Command("removeColdDataFlowCtrGroupConfig -b {broker} -g PairCold"),
    Command("getColdDataFlowCtrInfo -b {broker}"),
    Command("setCommitLogReadAheadMode -b {broker} -m 1"),
    Command("setCommitLogReadAheadMode -b {broker} -m 0"),
    Command("setCommitLogReadAheadMode -b {broker} -m 7"),
    Command("haStatus -b {broker}"),
    # NameServer
    Command("wipeWritePerm -b broker-a"),
    Command("wipeWritePerm -b no-such-broker"),
    Command("addWritePerm -b broker-a"),
    Command("getNamesrvConfig", keeps=names_only),
    Command("updateNamesrvConfig -k orderMessageEnable -v true"),
    Command("updateNamesrvConfig -k orderMessageEnable -v false"),
    Command("updateNamesrvConfig -k configStorePath -v /nowhere"),
    Command("updateKvConfig -s PAIR_NAMESPACE -k k1 -v v1"),
    Command("deleteKvConfig -s PAIR_NAMESPACE -k k1"),
    # queues, statistics
    Command(f"queryCq -t {TOPIC} -q 0 -i 0 -c 5 -b {{broker}}"),
    Command(f"queryCq -t {TOPIC} -q 0 -i 0 -c 5 -b {{broker}} -g {GROUP}"),
    Command(f"queryCq -t {TOPIC} -q 9 -i 0 -c 5 -b {{broker}}"),
    Command(f"checkRocksdbCqWriteProgress -c {CLUSTER} -t {TOPIC}"),
    Command(f"statsAll -t {TOPIC}", keeps=without_numbers),
    # what sends to queues of its own choice
    Command(f"queryMsgById -t {TOPIC} -i {{offset_id}} -s true", keeps=without_numbers),
    Command(f"sendMessage -t {TOPIC} -p hello", keeps=without_numbers),
    # Active is what moved within a minute, as far as the samples of every ten seconds tell.
    Command("statsAll -a true", until=rf"{TOPIC}\s+{GROUP}", keeps=without_those_who_left),
    Command(f"checkMsgSendRT -t {TOPIC} -a 3 -s 16", keeps=without_numbers),
    Command("sendMsgStatus -b broker-a -s 16 -c 2", keeps=without_numbers),
    # export
    Command(f"exportMetadata -c {CLUSTER} -f {{directory}}"),
    Command("exportMetadata -b {broker} -t -f {directory}"),
    Command("exportMetadata -b {broker} -g -f {directory}"),
    Command(f"exportConfigs -c {CLUSTER} -f {{directory}}"),
    Command(f"exportMetrics -c {CLUSTER} -f {{directory}}", keeps=without_numbers),
    Command("exportPopRecord -b {broker} -d true"),
    Command("exportMetadataInRocksDB -p {directory}/none -t topics"),
    Command("rocksDBConfigToJson -t topics -b {broker}"),
    Command("dumpCompactionLog -f {directory}/none"),
    # what takes things away
    Command(f"deleteTopic -c {CLUSTER} -t PairMade1"),
    Command(f"deleteTopic -c {CLUSTER} -t NoSuchTopic"),
    Command("deleteSubGroup -b {broker} -g PairGroup1 -r true"),
    Command(f"deleteSubGroup -c {CLUSTER} -g {OFFLINE_GROUP} -r true"),
    Command("deleteSubGroup -b {broker} -g NoSuchGroup"),
    Command(f"consumerProgress -g {OFFLINE_GROUP}"),
    # last, as the official tool cannot export what it has made then
    Command("updateStaticTopic -t PairStatic -qn 4 -b broker-a"),
    Command("remappingStaticTopic -t PairStatic -b broker-a"),
)
ENDLESS = ("clusterRT", "startMonitoring")
"""Commands with tests of their own: they do not end by themselves."""
OWN_SETTINGS = "only settings that have an effect are shown, our own among them"
DIFFERENT: Mapping[str, str] = {
    "getBrokerConfig -b {broker}": OWN_SETTINGS,
    "getNamesrvConfig": OWN_SETTINGS,
}


@pytest.fixture(scope="module")
def pair(official_software: OfficialSoftware, java_agent_process: JavaAgent, module_folder: Path) -> Iterator[Pair]:
    with (
        official_cluster(official_software, java_agent_process, module_folder / OFFICIAL) as official,
        thermocline_cluster(java_agent_process, module_folder / THERMOCLINE) as ours,
    ):
        clusters = (official, ours)
        # Both begin first: a consumer commits for the first time ten seconds after its start.
        sent = {cluster.kind: begin(cluster) for cluster in clusters}
        sides = {
            cluster.kind: prepare(cluster, module_folder / cluster.kind / "files", sent=sent[cluster.kind])
            for cluster in clusters
        }
        for side in sides.values():
            for name, content in FILES.items():
                (side.directory / name).write_text(json.dumps(content))
        yield Pair(ours=sides[THERMOCLINE], official=sides[OFFICIAL])


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.line.replace("{", "").replace("}", ""))
def test_a_command_prints_the_same(pair: Pair, command: Command) -> None:
    until = (lambda printed: re.search(command.until, printed) is not None) if command.until else None
    ours, official = pair.run(*command.line.split(), until=until)
    if command.keeps is not None:
        ours, official = command.keeps(ours), command.keeps(official)
    if command.line in DIFFERENT:
        assert ours != official, f"no longer different, so its line has to go: {DIFFERENT[command.line]}"
    else:
        assert ours == official


@pytest.mark.parametrize("name", ["metadata.json", "configs.json"])
def test_exported_files_have_the_same_members(pair: Pair, name: str) -> None:
    def members(directory: Path) -> object:
        (path,) = directory.rglob(name)
        return shape(json.loads(path.read_text()))

    def shape(value: object) -> object:
        if isinstance(value, dict):
            return {key: shape(member) for key, member in sorted(value.items())}
        return [shape(value[0])] if isinstance(value, list) and value else type(value).__name__

    assert members(pair.ours.directory) == members(pair.official.directory)


def test_cluster_round_trips_are_printed_until_it_is_stopped(pair: Pair) -> None:
    for side in (pair.ours, pair.official):
        printed = side.cluster.agent.call(
            "admin_until",
            arguments=["clusterRT", "-n", side.cluster.namesrv, "-a", "5", "-s", "16", "-i", "60"],
            pattern=r"DefaultCluster +broker-a +\S+ +\d+",
            timeout_ms=60_000,
        )
        row = re.search(r"DefaultCluster +broker-a +(\S+) +(\d+) +(\d+)", printed)
        assert row is not None
        assert (row[2], row[3]) == ("5", "0")


def test_monitoring_starts_and_is_seen_as_a_consumer(pair: Pair) -> None:
    """It has no end of its own, so it runs last; what it finds wrong it logs."""
    for side in (pair.ours, pair.official):
        assert side.cluster.admin("startMonitoring") == ""

        def is_online(side: Side = side) -> bool:
            return "OFFSET_MOVED_EVENT" in side.cluster.admin("consumerConnection", "-g", MONITOR_GROUP)

        wait_until(is_online, what="the monitor's consumer")


def test_every_difference_is_of_a_command_that_runs() -> None:
    assert set(DIFFERENT) <= {command.line for command in COMMANDS}
