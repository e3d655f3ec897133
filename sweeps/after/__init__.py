"""What is done with a study that has ended: its best trial, a refit, a bundle, an archive,
deletion.

Each verb reads the record and the folder of the study, and starts no trial by itself.
"""
