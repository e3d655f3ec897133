"""Training one trial with Keras on TensorFlow."""

import os

# What TensorFlow finds notable about this CPU, nobody can act on.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")
