"""LabelledTopics: which topics have a label of their own in metrics; the others are counted together under "*".

A topic that has once been given a label keeps it as long as it exists, so that its counters go on; else sums would jump
whenever another topic got busier. The first call labels the busiest topics, later calls label new ones, up to
`topics_max`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

OTHER = "*"
"""No topic has this name."""


class LabelledTopics:
    """See the module's header."""

    def __init__(self, *, topics_max: int) -> None:
        self._topics_max = topics_max
        self._labelled: dict[str, None] = {}

    @property
    def names(self) -> list[str]:
        """The topics that have a label."""
        return list(self._labelled)

    def label_of(self, topic: str) -> str:
        """The topic's label."""
        return topic if topic in self._labelled else OTHER

    def refresh(self, topics: Iterable[str], *, exists: Callable[[str], bool], traffic: Callable[[str], int]) -> None:
        """Give labels to topics while there are any left, the one with most `traffic` first."""
        for gone in [topic for topic in self._labelled if not exists(topic)]:
            del self._labelled[gone]
        free = self._topics_max - len(self._labelled)
        if free > 0:
            new = sorted((topic for topic in topics if topic not in self._labelled), key=lambda each: -traffic(each))
            self._labelled.update(dict.fromkeys(new[:free]))
