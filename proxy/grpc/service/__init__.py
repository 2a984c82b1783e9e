"""The RPCs of MessagingService."""

from thermocline.proxy.grpc.service.application import Application
from thermocline.proxy.grpc.service.background import Background
from thermocline.proxy.grpc.service.client_settings import shown_settings
from thermocline.proxy.grpc.service.grpc_rights import REQUEST_NAMES
from thermocline.proxy.grpc.service.messaging_service import service_methods
from thermocline.proxy.grpc.service.transactions import Transactions

__all__ = ["REQUEST_NAMES", "Application", "Background", "Transactions", "service_methods", "shown_settings"]
