"""Controller: replica sets, their masters and elections, agreed on by one, three or five nodes."""

from thermocline.controller.controller_config import ControllerConfig
from thermocline.controller.controller_server import ControllerServer

__all__ = ["ControllerConfig", "ControllerServer"]
