"""The RPCs of MessagingService."""

from thermocline.proxy.grpc.service.application import Application
from thermocline.proxy.grpc.service.background import Background
from thermocline.proxy.grpc.service.messaging_service import service_methods
from thermocline.proxy.grpc.service.transactions import Transactions

__all__ = ["Application", "Background", "Transactions", "service_methods"]
