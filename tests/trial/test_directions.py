"""The direction that the name of a metric tells."""

import pytest

from sweeps.trial.directions import is_fraction, natural_direction


@pytest.mark.parametrize(
    ("names", "direction"),
    [
        ("accuracy acc val_acc acc@1 acc5 top_5_accuracy valAccuracy val/accuracy ACC accuracy_score", "maximize"),
        ("auc test-auc valid_0-auc roc_auc auc_roc f1 F1 f1_macro val_f1_score recall precision mAP50", "maximize"),
        ("r2 val_r2_score mean_iou dice bleu4 rougeL ndcg@10 neg_mean_squared_error neg_log_loss", "maximize"),
        ("loss val_loss logloss validation-mlogloss rmse validation-rmse mae val_mse mape error merror", "minimize"),
        ("error_rate MeanSquaredError perplexity time epoch_time train_runtime time_s seconds wer", "minimize"),
        ("neg_accuracy 1-accuracy one_minus_auc inaccuracy", "minimize"),
        ("objective score x 1 @ memory_gb largest_batch accuracy_gap uptime lifetime learning_rate", ""),
        ("epochs_to_accuracy time_to_stable images_per_second false_positive_rate", ""),
    ],
)
def test_last_word_of_a_name_decides_the_direction(names: str, direction: str) -> None:
    assert {name: natural_direction(name) for name in names.split()} == dict.fromkeys(names.split(), direction)


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ("accuracy val_acc top_5_accuracy valAccuracy roc_auc f1 f1_macro precision mean_iou dice", True),
        ("loss r2 bleu psnr images_per_second epochs_to_accuracy accuracy_gap score @", False),
    ],
)
def test_fractions_are_known_by_name(names: str, expected: bool) -> None:
    assert {name: is_fraction(name) for name in names.split()} == dict.fromkeys(names.split(), expected)
