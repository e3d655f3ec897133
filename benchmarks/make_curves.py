"""200 learning curves of MNIST: validation accuracy after each of 27 epochs, for every value of a grid, into a table.

Networks as HPOBench's (scikit-learn's MLPClassifier, one hidden layer) train on 5,000 of the 60,000 images, averaged to
14 by 14 pixels, and are validated on the 10,000 test images. With schedule=cosine curves cross late. The table grows by
a line for each network; a further run goes on where the last one ended (5 minutes of a core).

    pip install -c constraints.txt scikit-learn
    python benchmarks/make_curves.py mnist.npz
"""

import itertools
import math
import random
import sys
from pathlib import Path
from typing import Any

import numpy as np
import sklearn
from sklearn.neural_network import MLPClassifier

TABLE = Path(__file__).parent / "data" / "mnist_curves.csv"
EPOCHS, IMAGES = 27, 5_000
SPACE: dict[str, list[Any]] = {
    "optimizer": ["adam", "sgd"],
    "lr": [0.0003, 0.001, 0.003, 0.01, 0.03],
    "schedule": ["constant", "cosine"],
    "batch_size": [32, 128],
    "width": [8, 16, 32, 64, 128],
}
HEADER = f"""\
# Accuracy on MNIST's test images by epoch: benchmarks/make_curves.py, scikit-learn {sklearn.__version__}
{",".join(SPACE)},{",".join(map(str, range(1, EPOCHS + 1)))}
"""


def curve(data: dict[str, Any], optimizer: str, lr: float, schedule: str, batch_size: int, width: int) -> list[float]:
    network = MLPClassifier(width, solver=optimizer, batch_size=batch_size, random_state=np.random.RandomState(0))
    network.set_params(learning_rate_init=lr)
    accuracies = []
    for epoch in range(EPOCHS):
        network.partial_fit(data["x_train"], data["y_train"], classes=range(10))
        accuracies.append(network.score(data["x_test"], data["y_test"]))
        if schedule == "cosine":
            rate = lr * (1 + math.cos(math.pi * (epoch + 1) / EPOCHS)) / 2
            network._optimizer.learning_rate = network._optimizer.learning_rate_init = rate
    return accuracies


def main() -> None:
    with np.load(sys.argv[1]) as archive:
        data = {key: archive[key][: IMAGES if "train" in key else None] for key in archive}
    for key in ("x_train", "x_test"):
        halved = data[key].reshape(-1, 14, 2, 14, 2).mean((2, 4)) / 255
        data[key] = halved.reshape(-1, 14 * 14).astype("float32")
    if not TABLE.exists():
        TABLE.parent.mkdir(exist_ok=True)
        TABLE.write_text(HEADER)
    done = {tuple(line.split(",")[: len(SPACE)]) for line in TABLE.read_text().splitlines()}
    points = [*itertools.product(*SPACE.values())]
    for point in random.Random(0).sample(points, len(points)):
        if tuple(map(str, point)) not in done:
            values = curve(data, *point)
            with TABLE.open("a") as table:
                print(*point, *(f"{value:.4f}" for value in values), sep=",", file=table)
    lines = TABLE.read_text().splitlines()
    TABLE.write_text("\n".join([*lines[:2], *sorted(lines[2:])]) + "\n")


if __name__ == "__main__":
    main()
