"""S3 servers for development and tests: versitygw, MinIO, LocalStack and moto, one launcher each."""

from thermocline.localstack.errors import LocalStackError, ServerStartError, ToolMissingError
from thermocline.localstack.s3_server import RECIPES, SERVER_KINDS, S3Server, start_server

__all__ = [
    "RECIPES",
    "SERVER_KINDS",
    "LocalStackError",
    "S3Server",
    "ServerStartError",
    "ToolMissingError",
    "start_server",
]
