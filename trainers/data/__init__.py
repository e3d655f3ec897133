"""What a training learns from."""
