"""S3 servers for development and tests: versitygw, MinIO, LocalStack and moto, one launcher each; two unfit ones."""

from thermocline.localstack.errors import LocalStackError, ServerStartError, ToolMissingError
from thermocline.localstack.s3_server import RECIPES, SERVER_KINDS, UNFIT_RECIPES, S3Server, start_server

__all__ = [
    "RECIPES",
    "SERVER_KINDS",
    "UNFIT_RECIPES",
    "LocalStackError",
    "S3Server",
    "ServerStartError",
    "ToolMissingError",
    "start_server",
]
