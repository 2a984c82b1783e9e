"""Metrics: the families of figures and their text form."""

from thermocline.broker.metrics.exposition import CONTENT_TYPE, Exposition
from thermocline.broker.metrics.labelled_topics import OTHER, LabelledTopics
from thermocline.broker.metrics.tier_figures import (
    PurposeFigures,
    TierFigures,
    TierFiguresRequest,
    TopicFigures,
    TopicRequestFigures,
    show_tier,
    sum_of_others,
)

__all__ = [
    "CONTENT_TYPE",
    "OTHER",
    "Exposition",
    "LabelledTopics",
    "PurposeFigures",
    "TierFigures",
    "TierFiguresRequest",
    "TopicFigures",
    "TopicRequestFigures",
    "show_tier",
    "sum_of_others",
]
