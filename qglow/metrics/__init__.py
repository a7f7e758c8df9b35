"""Metrics of tasks: what a model is good for, as one number, higher is better but where it says lower.

Each metric has a name for `--metric`, `qglow.compare(..., metric=NAME)` and baselines. Some need a truth file
in place of class labels (`--labels FILE`, `labels=FILE`):

    psnr, miou          dB, and per cent, against the float model's outputs
    top1, top5          per cent, by labels [N] of samples, or [N, T] of positions such as tokens
    agreement           per cent of samples or positions with the best class of the float model
    kl_float            divergence from the float model's probabilities in nats; lower is better
    map50, map          mean average precision of boxes at an overlap of 0.5, and over 0.5 to 0.95 as COCO
                        has it; per cent, by annotations in COCO's format
    f1, f1_float        F1 at an overlap of 0.5 of boxes with a score of at least 0.5; per cent, by
                        annotations in COCO's format, and against the float model's boxes
    exact_match         sequences that are right as a whole; per cent, by true sequences
    edit_accuracy       100 less the error rate of symbols; per cent, by true sequences
    exact_match_float, edit_accuracy_float    the same against the float model's sequences
    cross_entropy       of labels, or without them of the next tokens, in nats; lower is better
    perplexity          its exponential; lower is better
    log_likelihood      minus the cross-entropy

Metrics of boxes and sequences take a decoder behind a colon, a built-in one or a function:
`map50:relative_boxes`, `exact_match:ctc_last`, `map50:my_model:decode`. A decoder asks for some of `outputs`,
`inputs`, `keys` and `photos` by the names of its parameters, and gives one `Boxes`, or list of integers, a
sample:

    # my_model.py; qglow compare m.int8 --data val/ --labels boxes.json --metric map50:my_model:decode
    from qglow.metrics import Suppression, grid_corners, select_boxes

    def decode(outputs, photos):
        for rows, photo in zip(outputs["output"], photos):
            ratio = min(416 / photo.width, 416 / photo.height)
            corners = grid_corners(rows[:, :4], (416, 416)) / ratio
            yield select_boxes(corners, rows[:, 4:5] * rows[:, 5:], Suppression(0.01, 0.65))

The functions here do the same on arrays, without a model.
"""

from qglow.metrics.boxes import Boxes, Suppression, overlap, suppress
from qglow.metrics.classification import top1, top5, top_k
from qglow.metrics.detection import COCO_OVERLAPS, box_f1, map50, mean_average_precision
from qglow.metrics.heads import corners_of, grid, grid_corners, prior_corners, select_boxes
from qglow.metrics.images import miou, psnr
from qglow.metrics.language import cross_entropy, log_likelihood, perplexity
from qglow.metrics.positions import agreement, kl_float
from qglow.metrics.sequences import ctc_decode, edit_accuracy, edit_distance, exact_match
from qglow.metrics.truth import Photo, Truth, read_coco

__all__ = [
    "COCO_OVERLAPS",
    "Boxes",
    "Photo",
    "Suppression",
    "Truth",
    "agreement",
    "box_f1",
    "corners_of",
    "cross_entropy",
    "ctc_decode",
    "edit_accuracy",
    "edit_distance",
    "exact_match",
    "grid",
    "grid_corners",
    "kl_float",
    "log_likelihood",
    "map50",
    "mean_average_precision",
    "miou",
    "overlap",
    "perplexity",
    "prior_corners",
    "psnr",
    "read_coco",
    "select_boxes",
    "suppress",
    "top1",
    "top5",
    "top_k",
]
