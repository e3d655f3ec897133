"""Trials on this machine: forks of a server that has loaded the app's libraries, with GPUs handed
out to each."""
