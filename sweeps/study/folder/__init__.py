"""The folder of a study: who holds it, how it is taken over, the kept code, and reading it."""
