"""Clients that are connected to a proxy."""

from thermocline.proxy.clients.client_registry import ClientChannel, ClientKind, ClientRegistry, ProxyClient

__all__ = ["ClientChannel", "ClientKind", "ClientRegistry", "ProxyClient"]
