"""Somebody else's Hydra app: digits with plain Keras, one epoch of `model.fit`, in about half a second."""

import hydra
from omegaconf import DictConfig


def train(lr: float, seed: int) -> float:
    """The accuracy on what was held out."""
    import keras
    from sklearn.datasets import load_digits

    keras.utils.set_random_seed(seed)
    x, y = load_digits(return_X_y=True)
    layers = [keras.Input((64,)), keras.layers.Dense(128, activation="relu"), keras.layers.Dense(10)]
    model = keras.Sequential(layers)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(lr), loss, metrics=["accuracy"])
    history = model.fit(x / 16, y, validation_split=0.2, epochs=1, verbose=0)
    return float(history.history["val_accuracy"][0])


@hydra.main(version_base="1.3", config_path=None)
def main(cfg: DictConfig) -> float:
    return train(cfg.lr, cfg.seed)


if __name__ == "__main__":
    main()
