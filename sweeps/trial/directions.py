"""What the name of a metric tells: whether it improves upwards, as an accuracy, and whether it is
from 0 to 1."""

import difflib
import re
from collections.abc import Mapping, Sequence

_HIGHER = """
accuracy acc auc auroc auprc aucpr roc prauc rocauc f1 f1score f2 fbeta fscore precision ap map
recall sensitivity specificity r2 rsquared iou miou jaccard dice bleu rouge rougel meteor ndcg mrr
mcc kappa psnr ssim reward throughput
"""
_LOWER = """
loss logloss mlogloss error err merror inaccuracy rmse mse mae mape smape msle rmsle wer cer
perplexity ppl nll bce crossentropy brier regret latency duration time runtime walltime seconds cost
"""
_FRACTIONS = """
acc auc auroc auprc aucpr f precision ap recall sensitivity specificity iou miou jaccard dice
"""
_WORDS = dict.fromkeys(_HIGHER.split(), "maximize") | dict.fromkeys(_LOWER.split(), "minimize")
_ENDINGS = {"accuracy": "maximize", "loss": "minimize", "error": "minimize", "rmse": "minimize"}
_QUALIFIERS = {
    "score",
    "macro",
    "micro",
    "weighted",
    "mean",
    "avg",
    "val",
    "validation",
    "test",
    "best",
    "rate",
    "s",
}
# first words, as of neg_log_loss and 1-accuracy
_NEGATED = {"neg", "negative", "minus", "1", "one"}
_RATIOS = {"to", "per", "until"}  # as in epochs_to_accuracy and images_per_second


def natural_direction(name: str) -> str:
    """Return maximize or minimize, by the last word of a metric's name; "" if the name does not
    tell."""
    words = _words_of(name)
    direction = _direction_of(words[-1]) if words else ""
    if direction and words[0] in _NEGATED:
        return "minimize" if direction == "maximize" else "maximize"
    return direction


def is_fraction(name: str) -> bool:
    """Return whether the name is that of a metric from 0 to 1, such as an accuracy, if its values
    are, too."""
    words = _words_of(name)
    return bool(words) and (
        words[-1].rstrip("0123456789") in _FRACTIONS.split() or words[-1].endswith("accuracy")
    )


def objective_words(metrics: Mapping[str, float], names: Sequence[str]) -> str:
    """Return the words that choose metrics that exist, the closest for each name that is no
    metric."""
    others = [metric for metric in metrics if metric not in names]
    chosen = []
    for name in names:
        word = name
        if name not in metrics:
            word = next(iter(difflib.get_close_matches(name, others, 1, 0.4) or others), "...")
            others = [metric for metric in others if metric != word]
        chosen.append(word)
    if len(chosen) > 1:
        return f"'hydra.sweeper.objective=[{','.join(chosen)}]'"
    direction = natural_direction(chosen[0])
    more = f" hydra.sweeper.direction={direction}" if direction else ""
    return f"hydra.sweeper.objective={chosen[0]}{more}"


def _words_of(name: str) -> list[str]:
    """Return the words of a metric's name up to the word that names what is measured; none for a
    ratio."""
    spaced = re.sub(r"(?<=[a-z])(?=[A-Z][a-z])", " ", name)
    words = re.findall(r"[a-z0-9]+", spaced.lower())
    if _RATIOS.intersection(words):
        return []
    while len(words) > 1 and (words[-1] in _QUALIFIERS or words[-1].isdecimal()):
        words.pop()
    return words


def _direction_of(word: str) -> str:
    """Return the direction of a word, such as acc, acc5 or logloss."""
    direction = _WORDS.get(word) or _WORDS.get(word.rstrip("0123456789"))
    if direction:
        return direction
    return next((direction for ending, direction in _ENDINGS.items() if word.endswith(ending)), "")
