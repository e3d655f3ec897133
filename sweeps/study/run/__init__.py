"""The driver and its loop: starting, watching and closing trials, budgets, requests and stops."""
