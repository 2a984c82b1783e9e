"""`python -m thermocline.cli`: the command `thermocline` of this interpreter, wherever its script is."""

from thermocline.cli.main import main

main()
