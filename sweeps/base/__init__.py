"""What every room needs: errors, files, secrets, wording, signals and standard streams.

Imports no other room. Files are locked, replaced and appended here alone.
"""
