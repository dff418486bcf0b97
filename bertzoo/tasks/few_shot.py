"""A classifier from a few labelled texts: the encoder learns from pairs of them, and then its head from their vectors
(SetFit, Tunstall et al. 2022)."""

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import keras
import numpy as np

from bertzoo.data.contrastive_pairs import PairDataset, contrastive_pairs
from bertzoo.layers.heads import PooledHead
from bertzoo.losses.pairs import CosineRegression
from bertzoo.tasks.probabilities import sigmoid, softmax
from bertzoo.tasks.text_classifier import TextClassifier
from bertzoo.training.optimizer import AdamW
from bertzoo.types import MULTI_LABEL, REGRESSION, SINGLE_LABEL

if TYPE_CHECKING:
    from bertzoo.tasks.sentence_encoder import SentenceEncoder

TOL, MAX_ITER = 1e-7, 10_000  # of the head: the greatest change of a weight in the last step


def fit_few_shot(
    encoder: "SentenceEncoder",
    x: Any,
    y: Any,
    labels: int | Sequence[str],
    problem_type: str | None,
    num_iterations: int | None,
    epochs: int,
    batch_size: int,
    learning_rate: float,
    verbose: Any,
) -> TextClassifier:
    """See `SentenceEncoder.fit_classifier`."""
    if encoder.tokenizer is None or encoder.default_prompt is not None:
        raise ValueError(
            "fit_classifier reads texts as they are. Received: an encoder "
            + (
                "without a tokenizer."
                if encoder.tokenizer is None
                else f"with the prompt {encoder.default_prompt!r}; "
                "load it with default_prompt=None and put the prompt into the texts."
            )
        )
    classifier = _new_classifier(encoder, labels, problem_type)
    examples = classifier.data.parse(x, y)
    if examples.get("second text") is not None:
        raise ValueError("fit_classifier learns from single texts. Received: pairs. Use TextClassifier.fit.")
    targets = classifier.data.encode_targets(examples)
    pairs, scores = contrastive_pairs(targets, num_iterations)
    texts = classifier.data.encode(examples)
    dataset = PairDataset(
        texts, pairs, scores, batch_size=batch_size, pad_id=classifier.data.pad_id, seed=classifier.data.seed
    )
    # Another model of the same layers, so that the encoder's own loss and optimizer stay.
    trained = type(encoder)(encoder.backbone, encoder.tokenizer, encoder.pooling, encoder.after_pooling)
    with _frozen(encoder.backbone.embeddings):
        trained.compile(AdamW(learning_rate), CosineRegression())
        trained.fit(dataset, epochs=epochs, verbose=verbose)
    vectors = encoder.encode(examples["text"], prompt="", truncate_dim=encoder.width)
    kernel, bias = logistic_regression(vectors, targets, len(classifier.labels))
    classifier.classifier.after_pooling[-1].set_weights([kernel, bias])
    return classifier


@contextmanager
def _frozen(layer: keras.layers.Layer) -> Iterator[None]:
    """Within it, the layer does not train; after it, of its weights those that did."""
    before = [(weight, weight.trainable) for weight in layer.weights]
    was_trainable, layer.trainable = layer.trainable, False
    try:
        yield
    finally:
        layer.trainable = was_trainable
        for weight, trainable in before:
            weight.trainable = trainable


def _new_classifier(
    encoder: "SentenceEncoder", labels: int | Sequence[str], problem_type: str | None
) -> TextClassifier:
    """A classifier of the encoder's vectors."""
    count = labels if isinstance(labels, int) else len(labels)
    logits = keras.layers.Dense(count, name="logits", dtype="float32")
    head = PooledHead(encoder.pooling, [*encoder.after_pooling, logits], name="classifier")
    classifier = TextClassifier(encoder.backbone, encoder.tokenizer, labels, problem_type, head)
    if classifier.problem_type == REGRESSION:
        raise ValueError(
            f"problem_type must be {SINGLE_LABEL} or {MULTI_LABEL}. Received: {REGRESSION!r}. Use TextClassifier.fit."
        )
    return classifier


def logistic_regression(vectors: np.ndarray, targets: np.ndarray, num_labels: int) -> tuple[np.ndarray, np.ndarray]:
    """Logistic regression with an L2 penalty of ½ ‖kernel‖² beside the sum of the losses, the biases free.

    Each step minimizes the quadratic bound of the loss whose curvature is the same everywhere (Böhning and Lindsay
    1988), so that there is no step size to choose, and the loss falls at each.

    Args:
        vectors: float (n, width).
        targets: int (n,) classes, of which two are one decision; or 0 and 1 (n, labels), each label for itself.
        num_labels: How many classes or labels there are.

    Returns:
        Kernel (width, labels) and bias (labels,), float64.
    """
    is_binary = targets.ndim == 1 and num_labels == 2
    probabilities: Callable[[np.ndarray], np.ndarray]
    if targets.ndim == 1 and not is_binary:
        wanted, probabilities, curvature = np.eye(num_labels)[targets], softmax, 0.5
    else:
        wanted, probabilities, curvature = targets.reshape(len(targets), -1), sigmoid, 0.25
    # The solution is a sum of the vectors: at most n numbers describe each column of the kernel.
    basis, _ = np.linalg.qr(np.asarray(vectors, "float64").T)
    inputs = np.column_stack([vectors @ basis, np.ones(len(vectors))])
    penalty = np.append(np.ones(basis.shape[1]), 0.0)[:, None]
    inverse = np.linalg.inv(curvature * inputs.T @ inputs + np.diag(penalty[:, 0]))
    weights = np.zeros((inputs.shape[1], wanted.shape[1]))
    for _ in range(MAX_ITER):
        gradient = inputs.T @ (probabilities(inputs @ weights) - wanted) + penalty * weights
        change = inverse @ gradient
        weights = weights - change
        if np.abs(change).max() < TOL:
            break
    else:
        warnings.warn(f"the classifier's head still changes after {MAX_ITER:,} steps.", stacklevel=3)
    if is_binary:
        weights = weights / 2 * [[-1.0, 1.0]]
    return basis @ weights[:-1], weights[-1]
