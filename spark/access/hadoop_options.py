"""Turns the `fs.s3a.*` settings of a Spark session into options of a read.

A Python data source is planned and read in processes that see neither the session nor its configuration, only the
options of the read. So what s3a would use is looked up here, on the driver, and handed over as options: endpoint,
region, path style, keys and where they come from, timeouts, retries and encryption, each with its override for the one
bucket; `store_options.py` defines the effect of each. Classic sessions only (Spark Connect has no JVM at hand: give the
options by hand). Proxies, delegation tokens and the JVM's trust store do not carry over.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from thermocline.spark.access.store_options import BUCKET_PREFIX, HADOOP_PREFIX, SSE_KEY_NAMES, SSE_NAMES
from thermocline.spark.access.store_url import S3_SCHEMES
from thermocline.spark.metrics.collector import active_options

if TYPE_CHECKING:
    from pyspark.sql import DataFrameReader, SparkSession

FORMAT = "thermocline"
HADOOP_NAMES = (
    ("endpoint",),
    ("endpoint.region",),
    ("connection.ssl.enabled",),
    ("path.style.access",),
    ("access.key",),
    ("secret.key",),
    ("session.token",),
    ("aws.credentials.provider",),
    ("auth.profile.name",),
    ("auth.profile.file",),
    ("connection.establish.timeout",),
    ("connection.timeout",),
    ("connection.maximum",),
    ("attempts.maximum",),
    ("retry.limit",),
    ("retry.interval",),
    SSE_NAMES,
    SSE_KEY_NAMES,
)
"""With the old names of the same setting behind the new one."""
HADOOP_DEFAULTS = "core-default.xml"


def read_options(spark: SparkSession, url: str) -> dict[str, str]:
    """Options with which the data source reaches the bucket of `url` as s3a would; none for other kinds of URL.

    Within a block of `task_metrics` also the one by which the read takes part.
    """
    parts = urlsplit(url)
    if parts.scheme not in S3_SCHEMES:
        return active_options()
    settings = spark._jsparkSession.sessionState().newHadoopConf()
    options: dict[str, str] = {}
    for names in HADOOP_NAMES:
        of_bucket = [f"{BUCKET_PREFIX}{parts.netloc}.{name}" for name in names]
        for key in (*of_bucket, *(f"{HADOOP_PREFIX}{name}" for name in names)):
            value = settings.get(key)
            # Hadoop's built-in defaults are left out: they are meant for another client.
            if value and HADOOP_DEFAULTS not in (settings.getPropertySources(key) or ()):
                options[key] = str(value)
                break
    return options | active_options()


def configure(spark: SparkSession, url: str) -> DataFrameReader:
    """A reader of this data source that reaches the bucket of `url` as the session's s3a settings say."""
    return spark.read.format(FORMAT).options(**read_options(spark, url))
