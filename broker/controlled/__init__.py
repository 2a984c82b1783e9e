"""Controlled: a broker under a controller: its number, what it asks the controllers, and the role that they give it."""

from thermocline.broker.controlled.control_machine import ControlMachine
from thermocline.broker.controlled.controlled_broker import ControlledBroker
from thermocline.broker.controlled.controlled_processor import ControlledProcessor
from thermocline.broker.controlled.controller_client import ControllerClient
from thermocline.broker.controlled.identity_files import BrokerNames, IdentityFiles

__all__ = [
    "BrokerNames",
    "ControlMachine",
    "ControlledBroker",
    "ControlledProcessor",
    "ControllerClient",
    "IdentityFiles",
]
