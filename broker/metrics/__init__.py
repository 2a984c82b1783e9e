"""Metrics: the families of figures, and those of the tier process."""

from thermocline.broker.metrics.families import FAMILIES
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
    "FAMILIES",
    "OTHER",
    "LabelledTopics",
    "PurposeFigures",
    "TierFigures",
    "TierFiguresRequest",
    "TopicFigures",
    "TopicRequestFigures",
    "show_tier",
    "sum_of_others",
]
