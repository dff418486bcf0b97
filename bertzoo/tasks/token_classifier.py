"""A label for each word: names, parts of speech (Devlin et al. 2019, section 5.3)."""

from collections.abc import Sequence
from functools import cached_property
from typing import Any, ClassVar

import keras
import numpy as np
from keras import ops

from bertzoo._keras_hooks import print_message
from bertzoo.data.labels import make_label_names
from bertzoo.data.parsing import Examples
from bertzoo.data.window_data import TagData
from bertzoo.layers.crf import CRF
from bertzoo.models.encoder import Encoder
from bertzoo.tasks.answers.entities import best_labels, find_labelled_spans
from bertzoo.tasks.task import WindowedTask, token_ids_shape
from bertzoo.text import tags as bio
from bertzoo.text.tokenizer import Tokenizer
from bertzoo.text.word_alignment import align_words
from bertzoo.training.compiled_losses import MEAN
from bertzoo.training.optimizer import AdamW
from bertzoo.training.step import BackendModel
from bertzoo.types import Tensor

# Transitions start at 0 and get a larger rate than the encoder, at which they would hardly move.
CRF_RATE = 100.0
DECODED_AT_ONCE = 32


@keras.saving.register_keras_serializable("bertzoo")
class TokenClassifier(WindowedTask):
    """Labels each word of a text: its entities with `tag`, its words with `tag_words`.

    `fit(sentences, tags)` takes sentences as lists of words with a tag a word, or texts with entities as (start, end,
    type) in characters; see `bertzoo.data.schemas`. Texts that are longer than the model takes are cut into
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
        name: Name of the Keras model.

    The output is float32 logits (batch, length, labels).

    Raises:
        ValueError: The labels are not different names, or `label_all_tokens` is combined with a CRF.

    Example:
        >>> tagger = bz.TokenClassifier.from_preset("bert_mini_en", labels=["O", "B-place", "I-place"], verbose=False)
        >>> tagger.compile(bz.AdamW(1e-3))
        >>> history = tagger.fit([["We", "met", "in", "Rome"]], [["O", "O", "O", "B-place"]], epochs=10, verbose=0)
        >>> tagger.tag("We met in Rome")[0]["text"]
        'Rome'
    """

    heads = ("token_classifier",)
    per_token = True
    config_keys = ("labels", "label_all_tokens")
    own_options: ClassVar[dict[str, Any]] = {"crf": False, "label_all_tokens": False}

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
        self.labels = make_label_names(labels)
        if crf and label_all_tokens:
            raise ValueError("a CRF scores one label for each word: leave label_all_tokens=False.")
        self.label_all_tokens, self.scheme = label_all_tokens, bio.detect_tag_scheme(self.labels)
        self.data = TagData(tokenizer, backbone.config, self.labels, self.scheme, label_all_tokens)
        if crf:
            self.data.weighed_labels = None
        self.token_classifier = self.make_head("token_classifier", len(self.labels))
        self.crf = CRF(len(self.labels), _forbidden(self.labels, self.scheme)) if crf else None
        self.custom_head = self.crf  # saved as tensors of bertzoo's own
        self.build()

    def build(self, input_shape: Any = None) -> None:
        super().build()
        if self.crf is not None:
            self.crf.build()

    def call(self, inputs: Any, training: bool = False) -> Tensor:
        outputs, key = self.encode_inputs(inputs, training)
        return self.token_classifier(outputs["sequence_output"], key=key)

    def compute_output_shape(self, input_shape: Any) -> Any:
        return (*token_ids_shape(input_shape), len(self.labels))

    def onnx_outputs(self, nodes: Any) -> dict[str, Any]:
        logits = nodes.head(self.token_classifier, nodes.hidden)
        return {"logits": nodes.padded(logits, len(self.labels))}

    def exported_settings(self) -> dict[str, Any]:
        crf = None if self.crf is None else self.crf.score_table().tolist()
        return {**super().exported_settings(), "crf": crf, "scheme": self.scheme}

    # ---- use

    def tag(self, x: Any, batch_size: int = 32, verbose: Any = 0) -> list:
        """The entities of texts of any length, or, where the labels mark no entities, their words.

        Args:
            x: A text, a list of texts, or a list of sentences that are lists of words (characters then count in the
                words joined by spaces).
            batch_size: Rows at once.
            verbose: 1 shows a progress bar.

        Returns:
            For one text a list, for several a list of lists, of dicts in the order of the text: `text`, which is
            exactly `x[start:end]`; `label`, the type of the entity; `score`, the mean probability of its words' labels;
            `start` and `end` in characters. No word is split: an entity begins and ends where words do.
        """
        examples, labelled = self._label(x, batch_size, verbose)
        answers = []
        for text, (alignment, ids, scores) in zip(examples["text"], labelled):
            names = [self.labels[i] for i in ids]
            answers.append(find_labelled_spans(text, alignment, names, scores, self.scheme))
        return examples.unwrap(answers)

    def tag_words(self, sentences: Any, batch_size: int = 32, verbose: Any = 0) -> list:
        """A label for each word of sentences.

        Args:
            sentences: Lists of words; or texts, for a label for each of their words.
            batch_size, verbose: As for `tag`.

        Returns:
            A list of labels for each sentence; for a single text one list.
        """
        examples, labelled = self._label(sentences, batch_size, verbose)
        answers = []
        for words, (alignment, ids, _) in zip(examples["words"], labelled):
            names: list[str | None] = [None] * len(words)
            for group, (begin, end) in enumerate(alignment.words):
                names[begin:end] = [self.labels[ids[group]]] * int(end - begin)
            answers.append(self._without_gaps(names))
        return examples.unwrap(answers)

    def _without_gaps(self, names: list[str | None]) -> list[str]:
        """Words of which the tokenizer makes nothing are outside, or go on with the entity around them."""
        outside = bio.OUTSIDE if bio.OUTSIDE in self.labels else self.labels[0]
        after, filled = outside, []
        for i in range(len(names) - 1, -1, -1):
            name = names[i]
            if name is None:
                before = next((name for name in names[i::-1] if name is not None), outside)
                name = bio.to_inside_tag(after) if self.scheme and bio.is_same_entity(before, after) else outside
            after = name
            filled.append(name)
        return filled[::-1]

    def _label(self, x: Any, batch_size: int, verbose: Any) -> tuple[Examples, list[tuple]]:
        """The examples, and (alignment, label ids, scores) of each one's words."""
        self.data.require_tokenizer()
        examples = self.data.parse(x)
        windows = self.data.make_windows(examples)
        logits = windows.join_outputs(self.predict_rows(windows.rows, batch_size, verbose))
        alignments = [align_words(windows.text_offsets(i), words) for i, words in enumerate(examples["words"])]
        if self.crf is not None:
            emissions = [rows[alignment.tokens[:, 0]] for rows, alignment in zip(logits, alignments)]
            labelled = self._best_sequences(emissions)
        else:
            labelled = [
                best_labels(rows, alignment, self.label_all_tokens) for rows, alignment in zip(logits, alignments)
            ]
        return examples, [(alignment, *best) for alignment, best in zip(alignments, labelled)]

    def _best_sequences(self, emissions: list[np.ndarray]) -> list[tuple[np.ndarray, np.ndarray]]:
        """Label ids and probabilities, (words,) each, by the CRF from the emissions of each text's words: its best
        sequence, and marginal probabilities."""
        labelled: list = [None] * len(emissions)
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
                labelled[i] = ids, np.minimum(probabilities[row, np.arange(len(ids)), ids], 1.0)
        return labelled

    @cached_property
    def _decoder(self) -> keras.Model:
        return _Decoder(self.crf)

    # ---- training

    def default_loss(self) -> Any:
        # The mean over the labelled words; Keras's usual mean would also count the positions without label.
        return keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction=MEAN)

    def default_metrics(self) -> list:
        return [keras.metrics.SparseCategoricalAccuracy(name="accuracy")]

    def batch_loss(self, x: Any, y: Any, y_pred: Tensor, sample_weight: Any, training: bool) -> Tensor:
        """The mean loss of the labelled words, with a CRF that of their sequences.

        Args:
            x, y, y_pred, sample_weight, training: As `keras.Model.compute_loss`.
        """
        if self.crf is None:
            return super().batch_loss(x, y, y_pred, sample_weight, training)
        if sample_weight is None:
            sample_weight = ops.ones_like(y_pred[:, :, 0])
        counts = ops.cast(sample_weight > 0, "float32")
        weights = ops.amax(sample_weight, axis=-1)
        likelihood = self.crf.log_likelihood(y_pred, y, counts)
        # By word, so that it compares with the loss of a model without CRF.
        return -ops.divide_no_nan(ops.sum(likelihood * weights), ops.sum(sample_weight))

    def compile(self, optimizer: Any = None, *options: Any, **kwargs: Any) -> None:
        """As `Task.compile`; metrics count labelled words only. The weight of a CRF gets 100 times the rate.

        Args:
            optimizer, options, kwargs: Same as in `Task.compile`.
        """
        if optimizer is None and self.crf is not None:
            optimizer = AdamW(self.backbone.config.default_learning_rate, lr_multipliers={"crf/transitions": CRF_RATE})
            print_message(f"compile: AdamW as in the paper's recipe, {CRF_RATE:g} times its rate for the CRF")
        super().compile(optimizer, *options, **kwargs)

    # ---- files

    def _own_values(self) -> dict[str, Any]:
        return {"crf": self.crf is not None, "label_all_tokens": self.label_all_tokens}

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "crf": self.crf is not None}


class _Decoder(BackendModel, keras.Model):
    """A CRF as a model, whose `predict_on_batch` is compiled once a shape."""

    def __init__(self, crf: keras.layers.Layer):
        super().__init__(name="decoder")
        self.crf = crf

    def call(self, inputs: Any) -> Tensor:
        emissions, mask = inputs["emissions"], inputs["mask"]
        return self.crf.viterbi(emissions, mask), self.crf.marginals(emissions, mask)


def _forbidden(labels: list[str], scheme: str | None) -> list[tuple[int, int]]:
    if scheme is None:
        return []
    names = [*labels, None]
    return [
        (i, j) for i, a in enumerate(names) for j, b in enumerate(names) if not bio.is_transition_allowed(a, b, scheme)
    ]
