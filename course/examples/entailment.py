"""Entailment: does a second sentence follow from a first, contradict it, or neither?

What: `TextClassifier` on pairs of sentences from `templated.py`. Where all words of a hypothesis are in its
premise and it still does not follow ("the doctor helped the judge", "the judge helped the doctor"), a model that only
compares words is fooled (McCoy et al. 2019); those traps are counted separately.
Command: `python course/examples/entailment.py`. Time: about a minute on two CPU cores.
"""

import numpy as np
from templated import ENTAILMENT, entailment

import bertzoo as bz


def fit(preset: str = "bert_mini_en", rows: int = 1500, epochs: int = 3, rate: float = 4e-4) -> bz.TextClassifier:
    """A classifier of pairs, trained on `rows` of them."""
    premises, hypotheses, labels = entailment(rows, seed=0)
    model = bz.TextClassifier.from_preset(preset, labels=ENTAILMENT, new_head=True, verbose=False)
    model.compile(bz.AdamW(rate))
    model.fit((premises, hypotheses), labels, epochs=epochs, batch_size=16, verbose=2)
    return model


def is_trap(premise: str, hypothesis: str, label: str) -> bool:
    """Whether all words of a hypothesis are in its premise, which it does not follow from."""
    return label != "entailment" and set(hypothesis.split()) <= set(premise.split())


def scores(model: bz.TextClassifier, rows: int = 600) -> dict[str, float]:
    """Shares of right answers on other pairs: of all, and of the traps."""
    premises, hypotheses, labels = entailment(rows, seed=1)
    right = np.array([a["label"] == b for a, b in zip(model.classify((premises, hypotheses)), labels)])
    traps = np.array([is_trap(*row) for row in zip(premises, hypotheses, labels)])
    return {"all": float(right.mean()), "traps": float(right[traps].mean())}


def main() -> None:
    bz.set_seed(0)
    model = fit()
    print({name: f"{score:.1%}" for name, score in scores(model).items()})
    premise = "the doctor helped the judge ."
    for hypothesis in (
        "the judge was helped by the doctor .",
        "the judge helped the doctor .",
        "the judge was not helped by the doctor .",
    ):
        answer = model.classify([(premise, hypothesis)])[0]
        print(f"{premise} {hypothesis} -> {answer['label']} ({answer['score']:.2f})")


if __name__ == "__main__":
    main()
