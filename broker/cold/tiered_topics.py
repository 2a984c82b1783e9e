"""Which topics the cold tier holds: all but those in which the broker keeps its own unfinished work.

Retry and dead-letter topics are tiered like any topic. Messages that wait in an internal topic (delayed
ones) hold back local deletion by themselves, see docs/adr/0002.
"""

from thermocline.remoting.topic_validation import is_internal_topic


def is_tiered_topic(topic: str) -> bool:
    """True when messages of the topic are to be committed to the cold tier before their local file goes."""
    return not is_internal_topic(topic)
