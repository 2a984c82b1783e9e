"""What a Spark session knows of a bucket by its `fs.s3a.*` settings, as options of a read.

A Python data source is planned and read in processes that see neither the session nor its configuration, only the
options of the read. So what s3a would use is looked up here, on the driver, and handed over as options: endpoint,
region, path style, keys, session token and encryption, each with its override for the one bucket. Classic sessions only
(Spark Connect has no JVM at hand: give the options by hand). Credential providers written in Java, proxies, delegation
tokens and the JVM's trust store do not carry over.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from thermocline.spark.access.store_options import BUCKET_PREFIX, HADOOP_PREFIX
from thermocline.spark.access.store_url import S3_SCHEMES
from thermocline.spark.metrics.collector import active_options

if TYPE_CHECKING:
    from pyspark.sql import DataFrameReader, SparkSession

FORMAT = "thermocline"
HADOOP_NAMES = (
    "endpoint",
    "endpoint.region",
    "connection.ssl.enabled",
    "path.style.access",
    "access.key",
    "secret.key",
    "session.token",
    "encryption.algorithm",
    "encryption.key",
)


def read_options(spark: SparkSession, url: str) -> dict[str, str]:
    """Options with which the data source reaches the bucket of `url` as s3a would; none for other kinds of URL.

    Within a block of `task_metrics` also the one by which the read takes part.
    """
    parts = urlsplit(url)
    if parts.scheme not in S3_SCHEMES:
        return active_options()
    settings = spark._jsparkSession.sessionState().newHadoopConf()
    options: dict[str, str] = {}
    for name in HADOOP_NAMES:
        for key in (f"{BUCKET_PREFIX}{parts.netloc}.{name}", f"{HADOOP_PREFIX}{name}"):
            value = settings.get(key)
            if value:
                options[key] = str(value)
                break
    # What Hadoop says by default says nothing here; with an endpoint of one's own, path style is the better guess.
    defaults = {f"{HADOOP_PREFIX}path.style.access": "false", f"{HADOOP_PREFIX}connection.ssl.enabled": "true"}
    return {key: value for key, value in options.items() if defaults.get(key) != value} | active_options()


def configure(spark: SparkSession, url: str) -> DataFrameReader:
    """A reader of this data source that reaches the bucket of `url` as the session's s3a settings say."""
    return spark.read.format(FORMAT).options(**read_options(spark, url))
