"""What a training is told, and whether that can be: loads neither TensorFlow nor Keras."""
