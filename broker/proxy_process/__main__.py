"""Runs the proxy process: `python -m thermocline.broker.proxy_process`."""

from thermocline.broker.helpers import PROXY_ROLE, main
from thermocline.broker.proxy_process.proxy_process import serve

main(PROXY_ROLE, serve)
