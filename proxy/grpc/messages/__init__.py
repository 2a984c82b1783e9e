"""The protocol's messages: schema, classes, codes, conversions."""

from thermocline.proxy.grpc.messages.classes import PACKAGE, SERVICE, enums, messages
from thermocline.proxy.grpc.messages.codes import CODE_LABELS, Code, Language

__all__ = ["CODE_LABELS", "PACKAGE", "SERVICE", "Code", "Language", "enums", "messages"]
