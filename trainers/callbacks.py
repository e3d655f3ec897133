"""The former place of the Keras callback, which older task functions import."""

from sweeps.integrations.keras import ReportToTrial

__all__ = ["ReportToTrial"]
