"""scikit-learn's handwritten digits, read at import, because a warm process then reads them once
for all trials."""

import numpy as np
from sklearn.datasets import load_digits

_images, _labels = load_digits(return_X_y=True)
# Shuffled, because the file is ordered by writer.
_order = np.random.default_rng(0).permutation(len(_images))
_x = (_images[_order] / 16).astype(np.float32).reshape(-1, 8, 8)
_y = _labels[_order].astype(np.int32)

SPLIT = (_x[:1500], _y[:1500]), (_x[1500:], _y[1500:])
"""1,500 + 297 images of 8 x 8 pixels in 0..1."""
