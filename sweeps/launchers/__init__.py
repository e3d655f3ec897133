"""Where trials run: the contract of launchers, and one room for each launcher.

A launcher starts jobs, reports which of them have ended, and knows nothing of what is searched.
"""
