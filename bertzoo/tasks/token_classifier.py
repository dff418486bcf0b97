"""A label for each word: names, parts of speech (Devlin et al. 2019, section 5.3)."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import keras
import numpy as np
from keras import ops

from bertzoo.data.tagged import IGNORED, Tagged, find_columns, label_ids, read_tagged
from bertzoo.data.targets import class_weights, label_names, labels_for_file, labels_in_file
from bertzoo.layers.crf import CRF
from bertzoo.models.config import EncoderConfig
from bertzoo.models.encoder import Encoder
from bertzoo.tasks.probabilities import softmax
from bertzoo.tasks.token_task import WindowedTask, predict_rows
from bertzoo.text import tags as bio
from bertzoo.text.encoded import Encoded
from bertzoo.text.tokenizer import Tokenizer
from bertzoo.text.windows import Windows, cut_windows
from bertzoo.text.word_alignment import WordAlignment, align_words
from bertzoo.training.compiled_losses import MEAN
from bertzoo.training.default_rate import default_rate
from bertzoo.training.optimizer import AdamW
from bertzoo.training.step import BackendStep

# Transitions start at 0 and get a larger rate than the encoder, at which they would hardly move.
CRF_RATE = 100.0
DECODED_AT_ONCE = 32


@keras.saving.register_keras_serializable("bertzoo")
class TokenClassifier(WindowedTask):
    """Labels each word of a text: its entities with `tag`, its words with `tag_words`.

    `fit(sentences, tags)` takes sentences as lists of words with a tag a word, or texts with entities as (start, end,
    type) in characters; see `bertzoo.data.tagged.read_tagged`. Texts that are longer than the model takes are cut into
    overlapping windows, in training too; every word is learnt and labelled in the window with most context for it.
    Where the labels are BIO, BIOES or BILOU tags, those to learn from are checked.

    Args:
        backbone: The encoder.
        tokenizer: Turns text into the encoder's inputs; None if the caller tokenizes.
        labels: The names of the labels, or their number.
        label_all_tokens: All tokens of a word learn its label, and their probabilities are averaged. By default only
            its first token does, and the others do not count in the loss (Devlin et al. 2019).
        crf: Score whole sequences of labels with a `bertzoo.layers.CRF`, in which the transitions that the tags'
            scheme rules out are forbidden. Its weight is saved as a tensor that transformers leaves aside.

    The output is float32 logits (batch, length, labels).

    Raises:
        ValueError: The labels are not different names, or `label_all_tokens` is combined with a CRF.
    """

    heads = ("token_classifier",)
    per_token = True

    def __init__(
        self,
        backbone: Encoder,
        tokenizer: Tokenizer | None = None,
        labels: int | Sequence[str] = 2,
        label_all_tokens: bool = False,
        crf: bool = False,
        name: str = "token_classifier_task",
        **kwargs,
    ):
        super().__init__(backbone, tokenizer, name=name, **kwargs)
        self.labels = label_names(labels)
        if crf and label_all_tokens:
            raise ValueError("a CRF scores one label for each word: leave label_all_tokens=False.")
        self.label_all_tokens, self.scheme = label_all_tokens, bio.scheme_of(self.labels)
        self.token_classifier = backbone.family.token_classifier(
            backbone.dropout_config, len(self.labels), dtype=self.dtype_policy
        )
        self.crf = CRF(len(self.labels), _forbidden(self.labels, self.scheme)) if crf else None
        self.custom_head = self.crf  # saved as tensors of bertzoo's own
        self.build()

    def build(self, input_shape=None):
        self.token_classifier.build((None, None, self.backbone.config.hidden_size))
        if self.crf is not None:
            self.crf.build()

    def call(self, inputs, training: bool = False):
        outputs, key = self.encode_inputs(inputs, training)
        return self.token_classifier(outputs["sequence_output"], key=key)

    def compute_output_shape(self, input_shape):
        shape = input_shape["token_ids"] if isinstance(input_shape, dict) else input_shape
        return (*shape, len(self.labels))

    # ---- use

    def tag(self, x, batch_size: int = 32, verbose=0) -> list[list[dict[str, Any]]]:
        """The entities of texts of any length, or, where the labels mark no entities, their words.

        Args:
            x: A text, a list of texts, or a list of sentences that are lists of words (characters then count in the
                words joined by spaces).
            batch_size: Rows at once.
            verbose: 1 shows a progress bar.

        Returns:
            A list for each text (a single text gives a list of one), of dicts in the order of the text: `text`, which
            is exactly `x[start:end]`; `label`, the type of the entity; `score`, the mean probability of its words'
            labels; `start` and `end` in characters. No word is split: an entity begins and ends where words do.
        """
        tagged = read_tagged(x)
        answers = []
        for text, alignment, (ids, scores) in zip(tagged.texts, *self._label(tagged, batch_size, verbose)):
            names = [self.labels[i] for i in ids]
            groups = bio.find_entities(names) if self.scheme else [(name, i, i + 1) for i, name in enumerate(names)]
            answers.append([_entity(text, alignment, scores, *group) for group in groups])
        return answers

    def tag_words(self, sentences, batch_size: int = 32, verbose=0) -> list[list[str]]:
        """A label for each word of sentences, which are lists of words; for texts, for each of their words."""
        tagged = read_tagged(sentences)
        answers = []
        for words, alignment, (ids, _) in zip(tagged.words, *self._label(tagged, batch_size, verbose)):
            names: list[str | None] = [None] * len(words)
            for unit, (begin, end) in enumerate(alignment.words):
                names[begin:end] = [self.labels[ids[unit]]] * int(end - begin)
            answers.append(self._without_gaps(names))
        return answers

    def _without_gaps(self, names: list[str | None]) -> list[str]:
        """Words of which the tokenizer makes nothing are outside, or go on with the entity around them."""
        outside = bio.OUTSIDE if bio.OUTSIDE in self.labels else self.labels[0]
        after = outside
        for i in range(len(names) - 1, -1, -1):
            if names[i] is None:
                before = next((name for name in names[i::-1] if name is not None), outside)
                goes_on = self.scheme and bio.goes_on(before, after)
                names[i] = bio.inside(after) if goes_on else outside
            after = names[i]
        return names

    def _label(self, tagged: Tagged, batch_size: int, verbose):
        """The word alignment of each text, and (label ids, scores) of its words."""
        windows = self.cut(tagged)
        logits = windows.join(predict_rows(self, windows.rows, batch_size, verbose))
        alignments = [align_words(windows.offsets(i), tagged.words[i]) for i in range(len(tagged.texts))]
        if self.crf is not None:
            return alignments, self._best_sequences(
                [rows[found.tokens[:, 0]] for rows, found in zip(logits, alignments)]
            )
        return alignments, [self._best_labels(rows, found) for rows, found in zip(logits, alignments)]

    def _best_labels(self, logits: np.ndarray, alignment: WordAlignment) -> tuple[np.ndarray, np.ndarray]:
        """Label ids and their probabilities, (words,) each, from the logits of a text's tokens."""
        probabilities = softmax(logits)
        if not self.label_all_tokens:
            probabilities = probabilities[alignment.tokens[:, 0]]
        else:
            probabilities = np.array([probabilities[a:b].mean(axis=0) for a, b in alignment.tokens]).reshape(
                -1, len(self.labels)
            )
        return probabilities.argmax(axis=-1), probabilities.max(axis=-1)

    def _best_sequences(self, emissions: list[np.ndarray]) -> list[tuple[np.ndarray, np.ndarray]]:
        """The same by the CRF, from the emissions of each text's words: its best sequence, and marginal
        probabilities."""
        found: list = [None] * len(emissions)
        order = sorted(range(len(emissions)), key=lambda i: len(emissions[i]))
        for at in range(0, len(order), DECODED_AT_ONCE):
            rows = order[at : at + DECODED_AT_ONCE]
            length = max(32, -(-len(emissions[rows[-1]]) // 32) * 32)  # few shapes, since JAX compiles each
            values = np.zeros((DECODED_AT_ONCE, length, len(self.labels)), dtype="float32")
            mask = np.zeros((DECODED_AT_ONCE, length), dtype="int32")
            for row, i in enumerate(rows):
                values[row, : len(emissions[i])] = emissions[i]
                mask[row, : len(emissions[i])] = 1
            best, probabilities = self._decoder.predict_on_batch({"emissions": values, "mask": mask})
            for row, i in enumerate(rows):
                ids = best[row, : len(emissions[i])]
                found[i] = ids, np.minimum(probabilities[row, np.arange(len(ids)), ids], 1.0)
        return found

    @cached_property
    def _decoder(self) -> keras.Model:
        return _Decoder(self.crf)

    # ---- data

    find_columns = staticmethod(find_columns)

    def read(self, x, y=None) -> Tagged:
        return read_tagged(x, y)

    def cut(self, columns: Tagged) -> Windows:
        self.check_text()
        return cut_windows(self.tokenizer, columns.texts)

    def window_targets(self, columns: Tagged, windows: Windows) -> np.ndarray:
        """int32, a label for each token of the windows' rows, end to end; -1 where there is none to learn."""
        flat = np.full(len(windows.pieces.token_ids), IGNORED, dtype=np.int32)
        for i, ids in enumerate(label_ids(columns, self.labels, self.scheme)):
            alignment, at = align_words(windows.offsets(i), columns.words[i]), windows.pieces.row_splits[i]
            for (begin, _), (first, last) in zip(alignment.words, alignment.tokens):
                flat[at + first : at + (last if self.label_all_tokens else first + 1)] = ids[begin]
        return windows.spread(flat, IGNORED)

    def array_targets(self, x, y) -> np.ndarray:
        ids, y = np.asarray(x["token_ids"] if isinstance(x, dict) else x), np.asarray(y)
        if y.shape != ids.shape or y.dtype.kind not in "iu":
            raise ValueError(f"without a tokenizer, y must be integers {ids.shape}; it is {y.dtype} {y.shape}.")
        _check_ids(y, len(self.labels))
        mask = np.asarray(x["padding_mask"]) if isinstance(x, dict) and "padding_mask" in x else np.ones_like(ids)
        return np.maximum(y[mask > 0], IGNORED)

    def _convert_batch(self, batch: tuple, width) -> tuple:
        x, *rest = super()._convert_batch(batch, width)
        if not rest:
            return (x,)
        ids, weights = np.asarray(rest[0]), rest[1] if len(rest) > 1 else None
        _check_ids(ids, len(self.labels))
        if weights is None:
            weights = x.get("padding_mask", np.ones_like(ids)) if isinstance(x, dict) else np.ones_like(ids)
        return x, np.maximum(ids, 0), np.where(ids < 0, 0.0, np.asarray(weights)).astype("float32")

    def batch_targets(self, inputs, rows, targets, starts, weights) -> tuple:
        flat = Encoded(targets, np.zeros(len(targets), np.int8), starts)
        ids = flat.pad(rows, inputs["token_ids"].shape[1], IGNORED)["token_ids"]
        counts = (ids != IGNORED).astype("float32")
        return np.maximum(ids, 0), counts if weights is None else counts * weights[rows][:, None]

    # ---- training

    def default_loss(self):
        # The mean over the labelled words; Keras's usual mean would also count the positions without label.
        return keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction=MEAN)

    def default_metrics(self) -> list:
        return [keras.metrics.SparseCategoricalAccuracy(name="accuracy")]

    def batch_loss(self, x, y, y_pred, sample_weight, training: bool):
        if self.crf is None:
            return super().batch_loss(x, y, y_pred, sample_weight, training)
        if sample_weight is None:
            sample_weight = ops.ones_like(y_pred[:, :, 0])
        counts = ops.cast(sample_weight > 0, "float32")
        weights = ops.amax(sample_weight, axis=-1)
        likelihood = self.crf.log_likelihood(y_pred, y, counts)
        # By word, so that it compares with the loss of a model without CRF.
        return -ops.divide_no_nan(ops.sum(likelihood * weights), ops.sum(sample_weight))

    def compile(
        self, optimizer=None, loss=None, loss_weights=None, metrics=None, weighted_metrics=None, **kwargs
    ) -> None:
        """As `Task.compile`; metrics count labelled words only. The weight of a CRF gets 100 times the rate."""
        if optimizer is None and self.crf is not None:
            optimizer = AdamW(default_rate(self.backbone.config), lr_multipliers={"crf/transitions": CRF_RATE})
            print(f"compile: AdamW as in the paper's recipe, {CRF_RATE:g} times its rate for the CRF")
        super().compile(optimizer, loss, loss_weights, metrics, weighted_metrics, **kwargs)

    def _class_ids(self, class_weight):
        if class_weight is None:
            return None
        if self.crf is not None:
            raise ValueError("class_weight weighs single words, and a CRF scores whole sentences: pass sample_weight.")
        if not isinstance(class_weight, Mapping):
            raise ValueError(f"class_weight must be a dict of weights by label; it is {class_weight!r}.")
        return class_weights(class_weight, self.labels)

    # ---- files

    @classmethod
    def options_from_files(cls, config: EncoderConfig) -> dict[str, Any]:
        own = config.extra.get("bertzoo") or {}
        return {**labels_in_file(config), **{key: own[key] for key in ("crf", "label_all_tokens") if key in own}}

    def config_changes(self) -> dict[str, Any]:
        own = dict(self.backbone.config.extra.get("bertzoo") or {})
        for key, value in (("crf", self.crf is not None), ("label_all_tokens", self.label_all_tokens)):
            own.pop(key, None)
            if value:
                own[key] = value
        return {**labels_for_file(self.labels), "bertzoo": own or None}

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "labels": self.labels,
            "label_all_tokens": self.label_all_tokens,
            "crf": self.crf is not None,
        }


def _check_ids(y: np.ndarray, labels: int) -> None:
    if y.size and y.max() >= labels:
        raise ValueError(f"y holds {y.max()}; labels are numbers from 0 to {labels - 1}, below 0 where there is none.")


class _Decoder(BackendStep, keras.Model):
    """A CRF as a model, whose `predict_on_batch` is compiled once a shape."""

    def __init__(self, crf: CRF):
        super().__init__(name="decoder")
        self.crf = crf

    def call(self, inputs):
        emissions, mask = inputs["emissions"], inputs["mask"]
        return self.crf.viterbi(emissions, mask), self.crf.marginals(emissions, mask)


def _entity(
    text: str, alignment: WordAlignment, scores: np.ndarray, label: str, first: int, after: int
) -> dict[str, Any]:
    begin, end = int(alignment.spans[first, 0]), int(alignment.spans[after - 1, 1])
    score = float(np.mean(scores[first:after], dtype="float64"))
    return {"text": text[begin:end], "label": label, "score": score, "start": begin, "end": end}


def _forbidden(labels: list[str], scheme: str | None) -> list[tuple[int, int]]:
    if scheme is None:
        return []
    names = [*labels, None]
    return [(i, j) for i, a in enumerate(names) for j, b in enumerate(names) if not bio.may_follow(a, b, scheme)]
