"""The RPCs of MessagingService."""

from thermocline.proxy.grpc.service.application import Application
from thermocline.proxy.grpc.service.background import Background
from thermocline.proxy.grpc.service.broker_questions import BrokerQuestions
from thermocline.proxy.grpc.service.client_commands import ClientCommands
from thermocline.proxy.grpc.service.client_settings import reported_client, shown_settings
from thermocline.proxy.grpc.service.grpc_rights import REQUEST_NAMES
from thermocline.proxy.grpc.service.messaging_service import service_methods
from thermocline.proxy.grpc.service.transactions import Transactions

__all__ = [
    "REQUEST_NAMES",
    "Application",
    "Background",
    "BrokerQuestions",
    "ClientCommands",
    "Transactions",
    "reported_client",
    "service_methods",
    "shown_settings",
]
