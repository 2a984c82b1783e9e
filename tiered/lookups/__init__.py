"""Lookups: where the records of a key are."""

from thermocline.tiered.lookups.key_search import KeySearch, KeyWanted
from thermocline.tiered.lookups.lookup_memory import LookupMemory
from thermocline.tiered.lookups.place_search import PlaceAnswer, find_indexed_place

__all__ = ["KeySearch", "KeyWanted", "LookupMemory", "PlaceAnswer", "find_indexed_place"]
