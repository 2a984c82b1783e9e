"""`python -m thermocline.cli`: the command, where no entry point is installed."""

from thermocline.cli.main import main

main()
