"""Whether labels are classes."""

import numpy as np


def check(where: str, y_train: np.ndarray, y_test: np.ndarray | None = None) -> None:
    """Raise ValueError, naming array, row and value, unless labels are 0, 1, 2 ... with an example of each in y_train.

    y_train and y_test have shape (examples,) or (examples, 1); `where` names their source.
    """
    for name, y in (("y_train", y_train), ("y_test", y_test)):
        if y is None or not len(y):
            continue
        if y.dtype.kind in "US":
            raise ValueError(
                f"{where}: {name}[0] is the text {str(y.flat[0])!r}; labels must be whole numbers from 0 on\n"
                "numpy.unique(y, return_inverse=True) gives both the names and the numbers"
            )
        if y.dtype.kind not in "iu" or y.size != len(y):
            raise ValueError(
                f"{where}: A classification's labels are one whole number >= 0 an example; {name} is {y.dtype} of "
                f"shape {y.shape}. For a regression: dataset.task=regression loss=mse"
            )
        if y.dtype.kind == "i" and y.min() < 0:
            row = int(np.argmax(y.reshape(-1) < 0))
            raise ValueError(f"{where}: {name}[{row}] is {y.flat[row]}; labels must be whole numbers from 0 on")
    if not len(y_train):
        return
    classes = np.unique(y_train)
    if len(classes) == 1:
        raise ValueError(f"{where}: y_train holds class {classes[0]} only; there is nothing to tell apart")
    if classes[-1] != len(classes) - 1:
        missing = int(np.flatnonzero(classes != np.arange(len(classes)))[0])
        raise ValueError(
            f"{where}: y_train has no example of class {missing}, but of {len(classes)} classes up to {classes[-1]}\n"
            "Number them without gaps: numpy.unique(y, return_inverse=True)"
        )
    if y_test is not None and len(y_test) and y_test.max() > classes[-1]:
        row = int(np.argmax(y_test.reshape(-1) > classes[-1]))
        raise ValueError(f"{where}: y_test[{row}] is {y_test.flat[row]}; y_train knows 0 to {classes[-1]} only")
