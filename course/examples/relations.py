"""Relation extraction with entity markers (Baldini Soares et al. 2019, section 3, "entity markers, entity start").

What: which of four relations holds between two marked names of a sentence? The markers are added to the tokenizer and
to the encoder's table, and the head reads the encoder's vectors of [E1] and [E2], side by side, in place of [CLS]. It
also shows how to make a task of your own: state what differs from `TextClassifier`.
Command: `python course/examples/relations.py`. Time: under a minute on two CPU cores.
"""

import bertzoo as bz  # noqa: I001  (first: it chooses a backend before Keras is loaded)
import numpy as np
from keras import ops
from templated import MARKERS, RELATIONS, relations

from bertzoo.checkpoints.files import find_preset_directory
from bertzoo.tasks.added_tokens import add_tokens


class RelationClassifier(bz.TextClassifier):
    """Sorts pairs of names, between MARKERS in a text, by their relation. `head` reads (batch, 2 · hidden)."""

    def build(self, input_shape=None):
        if not self.classifier.built:  # one that a file describes is
            self.classifier.build((None, 2 * self.backbone.config.hidden_size))

    def call(self, inputs, training: bool = False):
        outputs, key = self.encode_inputs(inputs, training)
        tokenizer, vectors = self.tokenizer, []
        for start in MARKERS[::2]:
            here = ops.cast(inputs["token_ids"] == tokenizer.token_to_id(start), self.compute_dtype)
            vectors.append(ops.einsum("bt,bth->bh", here, outputs["sequence_output"]))
        return self.classifier(ops.concatenate(vectors, axis=-1), key=key)

    @classmethod
    def needs_pooler(cls, config) -> bool:
        return False


def make(preset: str = "bert_mini_en") -> RelationClassifier:
    """An untrained classifier on a pre-trained encoder that has learnt of the markers."""
    encoder = bz.Encoder.from_preset(preset, pooler=False, verbose=False)
    encoder, tokenizer = add_tokens(encoder, bz.Tokenizer.from_directory(find_preset_directory(preset)), MARKERS)
    tokenizer.max_length = 64
    head = bz.layers.ClassificationHead(len(RELATIONS))
    return RelationClassifier(encoder, tokenizer, labels=RELATIONS, head=head)


def fit(model: bz.TextClassifier, rows: int = 600, epochs: int = 2, rate: float = 3e-4) -> None:
    """Trains on `rows` sentences."""
    model.compile(bz.AdamW(rate))
    model.fit(*relations(rows, seed=0), epochs=epochs, batch_size=32, verbose=2)


def accuracy(model: bz.TextClassifier, rows: int = 300) -> float:
    """The share of right answers on other sentences."""
    texts, labels = relations(rows, seed=1)
    return float(np.mean([answer["label"] == label for answer, label in zip(model.classify(texts), labels)]))


def main() -> None:
    bz.set_seed(0)
    model = make()
    fit(model)
    print(f"right on new sentences: {accuracy(model):.1%}")
    sentence = "{0}Anna Bell{1} , who was born in {2}Rome{3} , works for {4}Royal Bank{5} ."
    for marked in ("[E1] ", " [/E1]", "[E2] ", " [/E2]", "", ""), ("[E1] ", " [/E1]", "", "", "[E2] ", " [/E2]"):
        text = sentence.format(*marked)
        print(f"{text} -> {model.classify([text])[0]['label']}")


if __name__ == "__main__":
    main()
