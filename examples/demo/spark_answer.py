"""The demo's question, asked of the bucket alone: departure delay per carrier and month, joined with the weather."""

import time
from dataclasses import dataclass

from cluster import ColdStore
from dataset import DelayRow
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from thermocline.spark import local_session

FLIGHT_SCHEMA = "month int, carrier string, origin string, dep_delay int, time_hour string"
WEATHER_SCHEMA = "origin string, time_hour string, wind_speed double"
PARTITION_BYTES = "16m"


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkAnswer:
    """What Spark found. `partitions`: tasks that read the flights."""

    rows: list[DelayRow]
    flights_read: int
    weather_read: int
    partitions: int
    seconds: float


def spark_delays(cold: ColdStore, *, flights_topic: str, weather_topic: str, has_repeats: bool) -> SparkAnswer:
    """Read both topics from the bucket and join them.

    `has_repeats`: flights may be stored more than once; the origin's number of a flight tells them apart.
    """
    spark = local_session(app_name="thermocline demo")
    try:
        started = time.monotonic()
        flight_messages = _read(spark, cold, flights_topic, has_properties=has_repeats)
        if has_repeats:
            stored_as = [f.col("properties").getItem(name) for name in ("origin", "number")]
            flight_messages = flight_messages.withColumn("id", f.concat_ws("-", *stored_as)).dropDuplicates(["id"])
        weather_messages = _read(spark, cold, weather_topic)
        flights = _json(flight_messages, FLIGHT_SCHEMA)
        weather = _json(weather_messages, WEATHER_SCHEMA)
        answer = (
            flights.where("dep_delay is not null")
            .join(weather, ["origin", "time_hour"], "left")
            .groupBy("carrier", "month")
            .agg(
                f.count("*").alias("flights"),
                f.sum("dep_delay").alias("delay_minutes"),
                f.count("wind_speed").alias("wind_readings"),
                f.coalesce(f.sum("wind_speed"), f.lit(0.0)).alias("wind_speed_sum"),
            )
            .orderBy("carrier", "month")
            .collect()
        )
        rows = [
            DelayRow(
                carrier=row["carrier"],
                month=row["month"],
                flights=row["flights"],
                delay_minutes=row["delay_minutes"],
                wind_readings=row["wind_readings"],
                wind_speed_sum=row["wind_speed_sum"],
            )
            for row in answer
        ]
        flights_read, weather_read = flight_messages.count(), weather_messages.count()
        return SparkAnswer(
            rows=rows,
            flights_read=flights_read,
            weather_read=weather_read,
            partitions=flight_messages.rdd.getNumPartitions(),
            seconds=time.monotonic() - started,
        )
    finally:
        spark.stop()


def _read(spark: SparkSession, cold: ColdStore, topic: str, *, has_properties: bool = False) -> DataFrame:
    return (
        spark.read.format("thermocline")
        .option("topic", topic)
        .option("includeProperties", has_properties)
        .option("maxPartitionBytes", PARTITION_BYTES)
        .options(**cold.spark_options)
        .load(cold.spark_url)
    )


def _json(messages: DataFrame, schema: str) -> DataFrame:
    return messages.select(f.from_json(f.col("value").cast("string"), schema).alias("row")).select("row.*")
