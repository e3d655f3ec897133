"""Training one trial with Keras on TensorFlow."""

import os

# Hides notes about CPU instructions, because a user cannot act on them.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")
