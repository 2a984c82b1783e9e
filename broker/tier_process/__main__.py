"""Runs the tier process: `python -m thermocline.broker.tier_process`."""

from thermocline.broker.helpers import TIER_ROLE, main
from thermocline.broker.tier_process.tier_process import serve

main(TIER_ROLE, serve)
