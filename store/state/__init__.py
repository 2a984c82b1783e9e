"""State: the small files beside the log: checkpoint, identity, origin, enrolment, incarnations and births of topics."""

from thermocline.store.state.checkpoint import StoreCheckpoint
from thermocline.store.state.enrolment import Enrolment, load_enrolment, remove_enrolment, save_enrolment
from thermocline.store.state.identity import StoreIdentity, load_or_make_identity
from thermocline.store.state.incarnation import Incarnation, IncarnationTable, TopicIncarnations
from thermocline.store.state.origin import StoreOrigin, load_origin, save_origin
from thermocline.store.state.table_changes import TableChanges
from thermocline.store.state.topic_births import BornTopic, TopicBirth, read_births, take_births, with_born

__all__ = [
    "BornTopic",
    "Enrolment",
    "Incarnation",
    "IncarnationTable",
    "StoreCheckpoint",
    "StoreIdentity",
    "StoreOrigin",
    "TableChanges",
    "TopicBirth",
    "TopicIncarnations",
    "load_enrolment",
    "load_or_make_identity",
    "load_origin",
    "read_births",
    "remove_enrolment",
    "save_enrolment",
    "save_origin",
    "take_births",
    "with_born",
]
