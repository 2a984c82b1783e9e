"""Bucket: a bucket read without a broker: its contents, its messages, checks. Reads only."""

from thermocline.tiered.bucket import bucket_verify
from thermocline.tiered.bucket.bucket_contents import list_indexes, list_pieces, list_topics
from thermocline.tiered.bucket.bucket_messages import WantedMessages, read_messages

__all__ = ["WantedMessages", "bucket_verify", "list_indexes", "list_pieces", "list_topics", "read_messages"]
