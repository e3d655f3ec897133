"""scikit-learn's handwritten digits, read when this is imported: a warm process does it once for all of its trials."""

import numpy as np
from sklearn.datasets import load_digits

_images, _labels = load_digits(return_X_y=True)
# The file is ordered by writer: mixed, training and test set come from the same ones.
_order = np.random.default_rng(0).permutation(len(_images))
_x = (_images[_order] / 16).astype(np.float32).reshape(-1, 8, 8)
_y = _labels[_order].astype(np.int32)

SPLIT = (_x[:1500], _y[:1500]), (_x[1500:], _y[1500:])
"""1,500 + 297 images of 8 x 8 pixels in 0..1."""
