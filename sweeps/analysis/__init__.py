"""What follows from the record of a study: comparisons, configurations, costs, fronts and advice.

Nothing here reads a file or a clock.
"""
