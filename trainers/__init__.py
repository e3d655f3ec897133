"""Training one trial with Keras on TensorFlow."""

import os

os.environ.setdefault(
    "TF_CPP_MIN_LOG_LEVEL", "1"
)  # what TensorFlow finds notable about this CPU, nobody can act on
