"""Errors of a server that is started for development or a test."""

from __future__ import annotations


class LocalStackError(Exception):
    """A server could not be had or did not start; the message says what to do."""


class ToolMissingError(LocalStackError):
    """This machine lacks a tool that the server is built or run with; the message names it."""


class ServerStartError(LocalStackError):
    """The server ended early or was not ready in time; the message ends with its own last words."""
