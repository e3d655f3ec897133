"""Labels of a classification as whole numbers."""

import numpy as np

_NUMBER = "Use numpy.unique(y, return_inverse=True) to number them without gaps"


def read(
    source: str, y_train: np.ndarray, y_test: np.ndarray
) -> tuple[np.ndarray, np.ndarray, str]:
    """Return the labels as whole numbers, from whole numbers, True and False, 1.0, or one-hot rows,
    and a remark on how they were read if they are no whole numbers.

    y_train and y_test have shape (examples,), (examples, 1) or, one-hot, (examples, classes);
    `source` is their name in messages. Raises ValueError, with array, row and value, unless they
    are 0, 1, 2 ... and y_train has all of them.
    """
    train, kind = _as_numbers(source, "y_train", y_train)
    test = y_test
    if len(y_test):
        test, _ = _as_numbers(source, "y_test", y_test)
    _check_range(source, train, test)
    remark = f"{source}: y_train is {y_train.dtype}, read {kind}" if kind else ""
    return train, test, remark


def _as_numbers(source: str, name: str, y: np.ndarray) -> tuple[np.ndarray, str]:
    """Return the labels as whole numbers, and the kind of what they were; "" for whole numbers."""
    _refuse_texts(source, name, y)
    if y.ndim == 2 and y.shape[1] > 1:
        return _from_one_hot(source, name, y), "as one-hot, by argmax(axis=1)"
    if y.dtype.kind not in "biuf" or y.size != len(y):
        raise ValueError(
            f"{source}: labels of a classification must be one whole number >= 0 per example, "
            f"but {name} is {y.dtype} of shape {y.shape}\nStore one number for each example"
        )
    flat = y.reshape(-1)
    if y.dtype.kind == "b":
        return flat.astype(np.int64), "as 0 and 1"
    if y.dtype.kind != "f":
        return flat, ""

    _check_whole(source, name, flat)
    return flat.astype(np.int64), "as whole numbers"


def _check_whole(source: str, name: str, labels: np.ndarray) -> None:
    is_finite = np.isfinite(labels)
    is_whole = labels == np.floor(labels)
    is_right = is_finite & is_whole & (np.abs(labels) < 2**31)
    if is_right.all():
        return

    row = int(np.argmin(is_right))
    count = int(np.count_nonzero(~is_right))
    remedy = "For a regression, use dataset.task=regression loss=mse"
    if not is_finite[row]:
        remedy = "Correct it"
    raise ValueError(
        f"{source}: {name}[{row}] is {labels[row]:g}; a label is a whole number >= 0"
        f" ({count} of {len(labels)} labels are no whole number)\n{remedy}"
    )


def _from_one_hot(source: str, name: str, y: np.ndarray) -> np.ndarray:
    """Return the class of each row. Raises ValueError unless the rows are one-hot."""
    is_one_hot = y.dtype.kind in "biuf" and bool(((y == 0) | (y == 1)).all())
    if is_one_hot and bool((y.sum(axis=1) == 1).all()):
        classes: np.ndarray = np.argmax(y, axis=1)
        return classes

    problem = f"{source}: {name} is {y.dtype} of shape {y.shape}, and not one-hot"
    if is_one_hot:
        row = int(np.argmax(y.sum(axis=1) != 1))
        problem += f": row {row} has {int(y[row].sum())} ones"
    raise ValueError(
        f"{problem}\nIf each row has scores of the classes, store {name}.argmax(axis=1). "
        "For a regression, use dataset.task=regression loss=mse"
    )


def _refuse_texts(source: str, name: str, y: np.ndarray) -> None:
    if y.dtype.kind not in "US":
        return
    raise ValueError(
        f"{source}: {name}[0] is the text {str(y.flat[0])!r}; labels must be whole numbers from 0"
        " on\nUse numpy.unique(y, return_inverse=True), which returns the names and the numbers"
    )


def _check_range(source: str, y_train: np.ndarray, y_test: np.ndarray) -> None:
    _check_not_negative(source, "y_train", y_train)
    _check_not_negative(source, "y_test", y_test)
    if not len(y_train):
        return
    classes = np.unique(y_train)
    count = len(classes)
    last = classes[-1]
    if count == 1:
        problem = f"y_train contains only class {last}"
        raise ValueError(f"{source}: {problem}. Add examples of another class")
    if last != count - 1:
        is_gap = classes != np.arange(count)
        missing = int(np.argmax(is_gap))
        raise ValueError(
            f"{source}: y_train has no example of class {missing}, but of {count} classes up to"
            f" {last}\n{_NUMBER}"
        )
    if len(y_test) and y_test.max() > last:
        is_new = y_test > last
        row = int(np.argmax(is_new))
        problem = f"y_test[{row}] is {y_test[row]}; y_train contains only 0 to {last}"
        raise ValueError(f"{source}: {problem}")


def _check_not_negative(source: str, name: str, y: np.ndarray) -> None:
    if len(y) and y.min() < 0:
        is_negative = y < 0
        row = int(np.argmax(is_negative))
        problem = f"{name}[{row}] is {y[row]}; labels must be whole numbers from 0 on"
        raise ValueError(f"{source}: {problem}\n{_NUMBER}")
