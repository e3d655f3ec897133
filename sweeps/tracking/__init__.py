"""How a study is shown in MLflow: a run for the study, a run for each trial, and views that compare
them.

Only this room imports mlflow.
"""
