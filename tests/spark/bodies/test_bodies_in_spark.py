"""Bodies into columns in real Spark: by the data source's options, and by the helpers for any DataFrame."""

from __future__ import annotations

import io
import json
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from tests.spark.bodies.test_protobuf_bodies import OPTIONS, SET, order
from tests.spark.cold_tier import ColdTier, directory_url, flights
from tests.tiered.cold_data import Log
from thermocline.remoting.errors import InvalidRequestError
from thermocline.spark import read_cold, with_avro_body, with_json_body, with_protobuf_body

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FLIGHT_DDL = "carrier STRING, dep_delay INT, distance BIGINT, origin STRING, missing DATE"
AVRO = {
    "type": "record",
    "name": "Flight",
    "fields": [{"name": "carrier", "type": "string"}, {"name": "delays", "type": {"type": "array", "items": "int"}}],
}
BAD = [b"nonsense", b'{"carrier": 1, "dep_delay": "late", "distance": 5}']


@pytest.fixture(scope="module")
def cold(tmp_path_factory: pytest.TempPathFactory) -> tuple[ColdTier, Log]:
    """Topics of JSON with two bad bodies, of Avro and of Protobuf, in one cold tier."""
    fastavro = pytest.importorskip("fastavro")
    tier = ColdTier(directory_url(tmp_path_factory.mktemp("cold")))
    log = flights("json", 300, queue_count=2)
    for body in BAD:
        log.append(0, body=body, tag="bad")
    tier.seal(log)
    avro, protobuf = (Log(topic=topic, random=Random(1), queue_count=1) for topic in ("avro", "protobuf"))
    for number in range(20):
        out = io.BytesIO()
        fastavro.schemaless_writer(out, AVRO, {"carrier": f"c{number}", "delays": list(range(number))})
        avro.append(0, body=out.getvalue())
        protobuf.append(0, body=order(s=f"c{number}", tags=["x"] * number).SerializeToString())
    avro.append(0, body=b"\x01")
    protobuf.append(0, body=b"\xff")
    tier.seal(avro)
    tier.seal(protobuf)
    return tier, log


def load(spark: SparkSession, tier: ColdTier, topic: str, **options: str) -> DataFrame:
    return spark.read.format("thermocline").option("topic", topic).options(**options).load(tier.url)


def rows(table: DataFrame) -> list[dict[str, Any]]:
    found = table.toArrow().to_pylist()
    return sorted(found, key=lambda row: (row["queueId"], row["queueOffset"]))


def test_json_bodies_are_columns_of_the_source(spark_session: SparkSession, cold: tuple[ColdTier, Log]) -> None:
    tier, _ = cold
    options = {"bodyFormat": "json", "bodySchema": FLIGHT_DDL}
    table = load(spark_session, tier, "json", columns="queueId,queueOffset,tag", **options)
    assert table.columns == ["queueId", "queueOffset", "tag", "body", "corruptBody"]
    found = rows(table)
    helped = rows(with_json_body(load(spark_session, tier, "json"), FLIGHT_DDL))
    assert len(found) == 302
    nothing = dict.fromkeys(("carrier", "dep_delay", "distance", "origin", "missing"))
    for row, same in zip(found, helped, strict=True):
        assert (row["body"] or nothing) == same["body"]
        assert (row["corruptBody"] is None) == (same["corruptBody"] is None)
        if row["tag"] != "bad":
            flight = json.loads(same["value"])
            assert row["body"] == {name: flight.get(name) for name in nothing}
    bad = [row for row in found if row["corruptBody"] is not None]
    assert [row["corruptBody"]["value"] for row in bad] == BAD
    assert bad[0]["body"] is None
    assert bad[1]["body"] == nothing | {"carrier": "1", "distance": 5}
    assert bad[1]["corruptBody"]["reason"] == "dep_delay is no int32: found a string"
    total = table.groupBy("body.origin").sum("body.distance").count()
    assert total == 4  # three airports, and those who name none


@pytest.mark.full
def test_streams_and_the_s3a_engine_give_the_same_columns(
    spark_session: SparkSession, cold: tuple[ColdTier, Log], tmp_path: Path
) -> None:
    tier, _ = cold
    options = {"columns": "queueId,queueOffset", "bodyFormat": "json", "bodySchema": FLIGHT_DDL}
    expected = rows(load(spark_session, tier, "json", **options))
    assert rows(read_cold(spark_session, tier.url, topic="json", engine="s3a", **options)) == expected
    airports = read_cold(
        spark_session, tier.url, topic="json", engine="s3a", where="body.origin = 'EWR' AND queueId = 1", **options
    )
    assert rows(airports) == [row for row in expected if row["queueId"] == 1 and row["body"]["origin"] == "EWR"]
    stream = spark_session.readStream.format("thermocline").option("topic", "json").options(**options).load(tier.url)
    query = (
        stream.writeStream.format("parquet")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(tmp_path / "sink"))
    )
    query.awaitTermination()
    assert rows(spark_session.read.parquet(str(tmp_path / "sink"))) == expected


def test_avro_and_protobuf_bodies(spark_session: SparkSession, cold: tuple[ColdTier, Log]) -> None:
    tier, _ = cold
    plain = "queueId,queueOffset,value"
    by_source = load(spark_session, tier, "avro", columns=plain, bodyFormat="avro", bodySchema=json.dumps(AVRO))
    found = rows(by_source)
    assert [row["body"] for row in found[:20]] == [{"carrier": f"c{n}", "delays": list(range(n))} for n in range(20)]
    assert found[20]["body"] is None
    assert found[20]["corruptBody"]["value"] == b"\x01"
    assert rows(with_avro_body(load(spark_session, tier, "avro", columns=plain), json.dumps(AVRO))) == found
    table = with_protobuf_body(load(spark_session, tier, "protobuf", columns=plain), SET, "shop.Order")
    found = rows(table)
    assert [(row["body"]["s"], len(row["body"]["tags"])) for row in found[:20]] == [(f"c{n}", n) for n in range(20)]
    assert found[20]["corruptBody"]["value"] == b"\xff"


def test_protobuf_by_options(spark_session: SparkSession, cold: tuple[ColdTier, Log], tmp_path: Path) -> None:
    tier, _ = cold
    path = tmp_path / "shop.desc"
    path.write_bytes(SET)
    options = {"bodyFormat": "protobuf", "bodySchema": str(path), "bodyMessage": OPTIONS.message_name}
    table = load(spark_session, tier, "protobuf", columns="queueId,queueOffset", **options)
    assert [row["body"] and row["body"]["s"] for row in rows(table)] == [*(f"c{n}" for n in range(20)), None]


def test_each_error_is_one_sentence(spark_session: SparkSession, cold: tuple[ColdTier, Log]) -> None:
    from pyspark.errors import PySparkException

    tier, _ = cold
    with pytest.raises(PySparkException, match="is none of json, avro, protobuf"):
        load(spark_session, tier, "json", bodyFormat="xml", bodySchema="a INT")
    with pytest.raises(PySparkException, match="the Avro schema is no JSON"):
        load(spark_session, tier, "json", bodyFormat="avro", bodySchema="a INT")
    table = load(spark_session, tier, "json", columns="queueId")
    with pytest.raises(InvalidRequestError, match="no such column"):
        with_json_body(table, "a INT")
    with pytest.raises(InvalidRequestError, match="'body' already"):
        with_json_body(table.selectExpr("'x' AS value", "1 AS body"), "a INT")
