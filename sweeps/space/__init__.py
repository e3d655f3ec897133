"""The search space: parameters, grids, listed points and exclusions.

Values are typed here, as they were when the command line was read.
"""
