"""Check that labels are classes."""

import numpy as np


def check(source: str, y_train: np.ndarray, y_test: np.ndarray | None = None) -> None:
    """Raise ValueError, with array, row and value, unless labels are 0, 1, 2 ... and y_train has all of them.

    y_train and y_test have shape (examples,) or (examples, 1); `source` is their name in the message.
    """
    for name, y in (("y_train", y_train), ("y_test", y_test)):
        if y is None or not len(y):
            continue
        if y.dtype.kind in "US":
            raise ValueError(
                f"{source}: {name}[0] is the text {str(y.flat[0])!r}; labels must be whole numbers from 0 on\n"
                "Use numpy.unique(y, return_inverse=True), which returns the names and the numbers"
            )
        if y.dtype.kind not in "iu" or y.size != len(y):
            raise ValueError(
                f"{source}: labels of a classification must be one whole number >= 0 per example, "
                f"but {name} is {y.dtype} of shape {y.shape}\nFor a regression, use dataset.task=regression loss=mse"
            )
        if y.dtype.kind == "i" and y.min() < 0:
            row = int(np.argmax(y.reshape(-1) < 0))
            raise ValueError(f"{source}: {name}[{row}] is {y.flat[row]}; labels must be whole numbers from 0 on")
    if not len(y_train):
        return
    classes = np.unique(y_train)
    if len(classes) == 1:
        raise ValueError(f"{source}: y_train contains only class {classes[0]}. Add examples of another class")
    if classes[-1] != len(classes) - 1:
        missing = int(np.flatnonzero(classes != np.arange(len(classes)))[0])
        raise ValueError(
            f"{source}: y_train has no example of class {missing}, but of {len(classes)} classes up to {classes[-1]}\n"
            "Use numpy.unique(y, return_inverse=True) to number them without gaps"
        )
    if y_test is not None and len(y_test) and y_test.max() > classes[-1]:
        row = int(np.argmax(y_test.reshape(-1) > classes[-1]))
        raise ValueError(f"{source}: y_test[{row}] is {y_test.flat[row]}; y_train contains only 0 to {classes[-1]}")
