"""The way from a command line to a checked plan, before anything is started."""
