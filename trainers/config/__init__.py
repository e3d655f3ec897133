"""The configuration of a training and its checks: imports neither TensorFlow nor Keras."""
