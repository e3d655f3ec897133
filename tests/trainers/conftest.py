import os

# Before TensorFlow is imported: these tests train on the CPU, quietly.
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
