"""Classes that a model was never trained on, by asking an entailment model (Yin et al. 2019)."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from bertzoo.tasks.probabilities import sigmoid, softmax
from bertzoo.text.inputs import as_texts

TEMPLATE = "This example is {}."


def zero_shot(
    classifier: Any,
    texts: Any,
    labels: Sequence[str],
    template: str = TEMPLATE,
    multi_label: bool = False,
    batch_size: int = 32,
) -> dict[str, Any] | list[dict[str, Any]]:
    """Whether each text entails `template` with each label in it.

    Args:
        classifier: A `TextClassifier` of natural-language inference, one of whose labels begins with "entail", and,
            for `multi_label`, one with "contra" or "not".
        texts: A text or a list of them.
        labels: The candidates.
        template: A sentence with {} where the label goes.
        multi_label: Each label is judged alone, entailment against contradiction; otherwise they compete.
        batch_size: Pairs at once.

    Returns:
        For one text a dict, for several a list of them: `label` and `score` of the best candidate, `scores` of all,
        best first.

    Raises:
        ValueError: The classifier is not one of inference, the template has no {}, or there are no labels.
    """
    if "{}" not in template:
        raise ValueError(f"template must hold {{}} where the label goes. Received: {template!r}.")
    if isinstance(labels, str) or not labels:
        raise ValueError(f"labels must be a list of candidates. Received: {labels!r}.")
    single, texts = isinstance(texts, str), as_texts(texts)
    if not texts:
        return []
    entails = _label(classifier, ("entail",))
    hypotheses = [template.replace("{}", label) for label in labels]
    firsts = [text for text in texts for _ in hypotheses]
    logits = classifier.logits((firsts, hypotheses * len(texts)), batch_size)
    logits = logits.astype("float64").reshape(len(texts), len(labels), -1)
    if multi_label:
        probabilities = sigmoid(logits[:, :, entails] - logits[:, :, _label(classifier, ("contra", "not"))])
    else:
        probabilities = softmax(logits[:, :, entails])
    answers = []
    for row in probabilities:
        order = np.argsort(-row, kind="stable")
        scores = {labels[i]: float(row[i]) for i in order}
        answers.append({"label": labels[order[0]], "score": float(row[order[0]]), "scores": scores})
    return answers[0] if single else answers


def _label(classifier, beginnings: tuple[str, ...]) -> int:
    found = [i for i, name in enumerate(classifier.labels) if name.lower().startswith(beginnings)]
    if len(found) != 1:
        raise ValueError(
            f"zero-shot classification needs a model of natural-language inference with one label that begins with "
            f"{' or '.join(beginnings)}; this one has {', '.join(classifier.labels)}."
        )
    return found[0]
