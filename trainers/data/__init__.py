"""Datasets: checked, loaded, cached and augmented."""
