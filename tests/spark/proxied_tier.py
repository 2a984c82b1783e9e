"""A cold tier in a bucket, read through a proxy that may turn against the reader."""

from __future__ import annotations

from tests.fixtures_s3 import S3Bucket
from tests.s3_proxy import S3Proxy
from tests.spark.cold_tier import ColdTier, flights
from thermocline.client.blocking import BackgroundLoop
from thermocline.spark.access.store_options import store_options


class ProxiedTier:
    """300 messages of one queue of `orders` in three segments."""

    def __init__(self, bucket: S3Bucket) -> None:
        self._loop = BackgroundLoop(name="s3-proxy")
        self._loop.start()
        self.proxy = S3Proxy(bucket)
        self._loop.run(self.proxy.__aenter__())
        self.bucket = self.proxy.bucket
        self._is_there = True
        self.options = {
            "s3.endpoint": self.bucket.endpoint,
            "s3.region": self.bucket.region,
            "s3.accessKey": self.bucket.access_key,
            "s3.secretKey": self.bucket.secret_key,
        }
        self.tier = ColdTier(f"s3a://{bucket.name}/cold", options=store_options(self.options))
        self.tier.seal_in_pieces(flights("orders", 300, queue_count=1), 3)

    def go_away(self) -> None:
        """Close the endpoint: connections to it are refused."""
        if self._is_there:
            self._is_there = False
            self._loop.run(self.proxy.__aexit__(None, None, None))

    def close(self) -> None:
        self.go_away()
        self._loop.close()
