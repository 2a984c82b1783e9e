"""Object store in an S3 bucket, or in whatever speaks S3's protocol."""

from thermocline.tiered.s3.s3_object_store import S3ObjectStore, S3Options

__all__ = ["S3ObjectStore", "S3Options"]
