"""The three standard streams of a command that a daemon, cron or `<&- >&- 2>&-` has started without
them."""

import os
import sys


def open_closed_streams() -> None:
    """Open /dev/null for each closed standard stream, so that no file of ours gets its number.

    Libraries print to these numbers, and a child process finds its own streams there.
    """
    number = os.open(os.devnull, os.O_RDWR)
    while number <= 2:
        os.set_inheritable(number, True)
        number = os.open(os.devnull, os.O_RDWR)  # because open() takes the lowest free number
    os.close(number)

    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            # not closed: it is open for the life of the process
            setattr(sys, name, open(os.devnull, mode))  # noqa: PTH123, SIM115
