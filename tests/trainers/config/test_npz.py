import io
import pickle
import zipfile
from pathlib import Path

import numpy as np
import pytest

from tests.trainers.config.composing import check
from trainers.data.npz import describe

X, Y = np.zeros((40, 2, 2), np.uint8), np.arange(40) % 3
GOOD = {"x_train": X, "y_train": Y, "x_test": X[:7], "y_test": Y[:7]}


class Trap:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return (Path.touch, (Path("unpickled"),))  # type: ignore[return-value]


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_rows_of_a_good_file(save: object, tmp_path: Path) -> None:
    path = tmp_path / "good.npz"
    save(path, **GOOD)  # type: ignore[operator]
    assert describe(str(path))["x_train"][0][0] == 40
    for name in ("mnist", "npz"):
        check(f"dataset={name}", f"dataset.path={path}", "batch_size=33")
        with pytest.raises(ValueError, match=r"batch_size=34 is larger than the training set \(33 examples"):
            check(f"dataset={name}", f"dataset.path={path}", "batch_size=34")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"y_test": None}, "lacks y_test; it contains x_test, x_train, y_train"),
        ({"x_train": None, "y_train": None}, "lacks x_train, y_train; it contains x_test, y_test"),
        ({"y_train": Y[:39]}, "x_train has 40 rows, but y_train has 39"),
        ({"x_test": X[:0], "y_test": Y[:0]}, "x_test is empty"),
        ({"x_train": np.float32(1)}, "x_train is empty"),
        ({"y_train": np.array([{}] * 40)}, "y_train contains pickled objects, which are never loaded"),
        ({"x_train": X[:, 0, 0], "x_test": X[:7, 0, 0]}, "x_train has shape (40,), and no axis of inputs"),
        ({"x_train": X / 255}, "x_test is uint8, whose values are divided by 255, but x_train is float64"),
        ({"x_test": X[:7] / 255}, "x_train is uint8, whose values are divided by 255, but x_test is float64"),
    ],
)
def test_errors_inside_an_npz(changes: dict[str, object], message: str, tmp_path: Path) -> None:
    arrays = {name: array for name, array in (GOOD | changes).items() if array is not None}
    np.savez(tmp_path / "bad.npz", **arrays)  # type: ignore[arg-type]
    with pytest.raises(ValueError) as error:
        check("dataset=mnist", f"dataset.path={tmp_path}/bad.npz")
    assert message in str(error.value)
    assert str(error.value).startswith(f"dataset.path={tmp_path}/bad.npz")
    assert len(str(error.value).splitlines()) <= 2


def test_values_to_predict_are_numbers(tmp_path: Path) -> None:
    np.savez(tmp_path / "texts.npz", **(GOOD | {"y_train": Y.astype(str)}))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"texts\.npz: y_train is <U21. Store numbers"):
        check("dataset=npz", f"dataset.path={tmp_path}/texts.npz", "dataset.task=regression", "loss=mse")


def test_files_that_are_no_npz(tmp_path: Path) -> None:
    np.save(tmp_path / "array.npy", X)
    (tmp_path / "text.npz").write_text("x_train")
    (tmp_path / "pickle.npz").write_bytes(pickle.dumps(GOOD))
    np.savez(tmp_path / "whole.npz", **GOOD)
    (tmp_path / "cut.npz").write_bytes((tmp_path / "whole.npz").read_bytes()[:-40])
    with zipfile.ZipFile(tmp_path / "texts.npz", "w") as archive:
        for name in GOOD:
            archive.writestr(f"{name}.npy", "zeros")
    for name in ("array.npy", "text.npz", "pickle.npz", "cut.npz"):
        with pytest.raises(ValueError, match=r"is no \.npz file"):
            describe(str(tmp_path / name))
    with pytest.raises(ValueError, match="x_train is no numpy array"):
        describe(str(tmp_path / "texts.npz"))
    with pytest.raises(ValueError, match=r"missing.npz does not exist \(working directory: "):
        describe(str(tmp_path / "missing.npz"))
    with pytest.raises(ValueError, match="is a folder"):
        describe(str(tmp_path))


def test_npz_is_never_unpickled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    file = io.BytesIO()
    np.save(file, np.array([Trap()] * 40, dtype=object), allow_pickle=True)
    np.savez("trap.npz", **GOOD)
    with zipfile.ZipFile("trap.npz", "a") as archive:
        archive.writestr("y_train2.npy", file.getvalue())
    np.savez("trap2.npz", **(GOOD | {"x_train": np.array([Trap()] * 40, dtype=object)}))
    describe("trap.npz")
    with pytest.raises(ValueError, match="pickled objects"):
        describe("trap2.npz")
    assert not Path("unpickled").exists()


def test_a_replaced_file_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "mine.npz"
    np.savez(path, **GOOD)
    assert describe(str(path))["x_train"][0][0] == 40
    path.unlink()
    np.savez(path, **(GOOD | {"x_train": X[:20], "y_train": Y[:20]}))
    assert describe(str(path))["x_train"][0][0] == 20
