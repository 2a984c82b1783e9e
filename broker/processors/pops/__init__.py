"""POP processors: pops, acknowledgements and peeks."""

from thermocline.broker.processors.pops.ack import AckProcessor
from thermocline.broker.processors.pops.pop import PopProcessor
from thermocline.broker.processors.pops.pop_look import PopLookProcessor

__all__ = ["AckProcessor", "PopLookProcessor", "PopProcessor"]
