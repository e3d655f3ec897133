"""A study from its command line to its end: the plan, the folder and the run.

Each of the three is a room of its own.
"""
