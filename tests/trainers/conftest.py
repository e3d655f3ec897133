import os

# before the import of TensorFlow, because the tests train on the CPU, without notes
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
