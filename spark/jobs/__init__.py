"""Jobs that people run, as functions and as commands."""
