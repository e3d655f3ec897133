"""Callbacks that connect the training loop of a framework with its trial. Each module imports its
framework alone."""


def is_reported(boosting_round: int) -> bool:
    """Return whether a round is reported: each of the first 99, each 10th up to 999, each 100th up
    to 9,999, ..."""
    return boosting_round % int(f"1{'0' * (len(str(boosting_round)) - 2)}") == 0
