"""Entities of any label, named when they are looked for: GLiNER (Zaratiana et al. 2024)."""

from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from bertzoo._keras_hooks import print_message
from bertzoo.data.entity_data import NO_LABELS, EntityData, PromptSettings
from bertzoo.data.parsing import Examples
from bertzoo.layers.entities import SPANS, TOKENS, EntityHead
from bertzoo.losses.entities import EntityLoss
from bertzoo.models.encoder import Encoder
from bertzoo.tasks.answers.any_entities import Candidate, answer_of_text, find_candidates, select_entities
from bertzoo.tasks.gliner_task import ENT_TOKEN, KEYS, SEP_TOKEN, GlinerTask
from bertzoo.text.label_prompts import LABEL, WORD
from bertzoo.text.tokenizer import Tokenizer
from bertzoo.training.optimizer import AdamW
from bertzoo.types import Tensor

HEAD_RATE = 5.0  # of the paper's rates, 5e-5 for the new layers and 1e-5 for the encoder
LEAST = {
    "hidden_size": 1,
    "max_width": 1,
    "max_types": 1,
    "max_len": 1,
    "num_rnn_layers": 0,
    "max_neg_type_ratio": 0,
}  # of arguments


@keras.saving.register_keras_serializable("bertzoo")
class EntityFinder(GlinerTask):
    """Finds entities of any label names with `tag(texts, labels)`.

    The label names stand before the text, each behind a token that stands for it; entities are the spans of words whose
    vectors fit that of a label. `from_preset` loads GLiNER's models, and makes a new one of any encoder. Arguments have
    their names and defaults from gliner_config.json.

    `fit(texts, entities)` takes texts with entities as (start, end, label) in characters, or sentences as lists of
    words with a BIO tag a word. In each epoch a text's prompt has the labels of its entities and a few that other texts
    have, drawn by the seed.

    Args:
        backbone: The encoder. Its vocabulary holds the tokens of prompts, see `bertzoo.tasks.added_tokens.add_tokens`.
        tokenizer: Its tokenizer; None if only the model is called.
        span_mode: "markerV0" gives each span of words a logit for each label; "token_level" each word one for being the
            first, the last, and any word of an entity of the label, which has no longest entity.
        hidden_size: The width of words and labels; where it is not the encoder's, they are projected.
        max_width: Words of the longest entity of "markerV0".
        num_rnn_layers: The number of LSTMs over the words.
        dropout: Fraction of the elements of the scorer's hidden layers that training drops.
        max_types: The most labels of a prompt; more are asked for in several rows.
        max_len: The most words of a row; longer texts are cut into overlapping windows.
        max_neg_type_ratio: In training, the most labels in a prompt that a text does not have, for each that it has.
        embed_ent_token: Whether a label's vector is that of `ent_token` before it, else of the token after that.
        subtoken_pooling: "first" or "last", the token that stands for a word.
        ent_token, sep_token: The token before each label, and that after the last.
        settings: Further keys of gliner_config.json, which are carried through.
        name: Name of the Keras model.

    Inputs are the encoder's, with `word_positions` int (batch, words) and `label_positions` int (batch, labels), the
    tokens of words and labels, and `word_counts` int (batch,). The output is float32 logits (batch, words, max_width,
    labels), or (batch, words, labels, 3) with "token_level".

    Raises:
        ValueError: An argument is out of its range, or the tokenizer lacks a token of prompts.
    """

    config_keys = (*KEYS, "settings")
    reads_token_roles = True  # in an export, see `bertzoo.export.onnx_graph.entities`

    def __init__(
        self,
        backbone: Encoder,
        tokenizer: Tokenizer | None = None,
        span_mode: str = SPANS,
        hidden_size: int = 512,
        max_width: int = 12,
        num_rnn_layers: int = 1,
        dropout: float = 0.4,
        max_types: int = 25,
        max_len: int = 384,
        max_neg_type_ratio: int = 1,
        embed_ent_token: bool = True,
        subtoken_pooling: str = "first",
        ent_token: str = ENT_TOKEN,
        sep_token: str = SEP_TOKEN,
        settings: Mapping[str, Any] | None = None,
        name: str = "entity_finder",
        **kwargs,
    ):
        super().__init__(backbone, tokenizer, name=name, **kwargs)
        self.span_mode, self.hidden_size, self.max_width = span_mode, hidden_size, max_width
        self.num_rnn_layers, self.dropout, self.max_types, self.max_len = num_rnn_layers, dropout, max_types, max_len
        self.max_neg_type_ratio, self.embed_ent_token = max_neg_type_ratio, embed_ent_token
        self.subtoken_pooling, self.ent_token, self.sep_token = subtoken_pooling, ent_token, sep_token
        self.settings = dict(settings or {})
        self._check_arguments()
        if tokenizer is not None:
            self._check_tokens(tokenizer)
        if backbone.pooler is not None:  # unused, and kept for saving
            backbone.pooler.trainable = False
        self.entities = EntityHead(span_mode, hidden_size, max_width, num_rnn_layers, dropout)
        self.build()
        self.data: EntityData = EntityData(tokenizer, backbone.config, self._prompt_settings())

    def _check_arguments(self) -> None:
        if self.span_mode not in (SPANS, TOKENS) or self.subtoken_pooling not in ("first", "last"):
            raise ValueError(
                f"span_mode must be {SPANS!r} or {TOKENS!r}, and subtoken_pooling 'first' or 'last'. Received: "
                f"{self.span_mode!r} and {self.subtoken_pooling!r}."
            )
        for name, least in LEAST.items():
            if (value := getattr(self, name)) < least:
                raise ValueError(f"{name} must be at least {least}. Received: {value!r}.")
        if self.num_rnn_layers and self.hidden_size % 2:
            raise ValueError(
                f"hidden_size must be even, half for each direction of an LSTM. Received: {self.hidden_size!r}."
            )

    def _check_tokens(self, tokenizer: Tokenizer) -> None:
        for token in (self.ent_token, self.sep_token):
            number, rows = tokenizer.token_to_id(token), self.backbone.config.vocab_size
            if number is None or number >= rows:
                raise ValueError(
                    f"the tokenizer must have the token {token!r}, and the encoder an embedding for it. Received: id "
                    f"{number} and {rows} embeddings. Add it with bertzoo.tasks.added_tokens.add_tokens."
                )

    def _prompt_settings(self) -> PromptSettings:
        return PromptSettings(
            ent_token=self.ent_token,
            sep_token=self.sep_token,
            embed_ent_token=self.embed_ent_token,
            reads_last_token=self.subtoken_pooling == "last",
            max_types=self.max_types,
            max_len=self.max_len,
            max_neg_type_ratio=self.max_neg_type_ratio,
            max_width=self.max_width if self.span_mode == SPANS else None,
        )

    def build(self, input_shape: Any = None) -> None:
        self.entities.build((None, None, self.backbone.config.hidden_size))

    def call(self, inputs: Any, training: bool = False) -> Tensor:
        inputs = dict(inputs)
        words, counts, labels = (inputs.pop(name) for name in ("word_positions", "word_counts", "label_positions"))
        positions = ops.maximum(ops.concatenate([labels, words], axis=1), 0)
        outputs, key = self.encode_inputs(inputs, training, positions)
        vectors = ops.cast(outputs["sequence_output"], "float32")
        num_labels = ops.shape(labels)[1]
        return self.entities(vectors[:, num_labels:], vectors[:, :num_labels], words, counts, key=key)

    # ---- exports

    def onnx_outputs(self, nodes: Any) -> dict[str, Any]:
        return {"logits": nodes.entities(self.entities, self.max_types)}

    def outputs_by_onnx(self, model: Any, inputs: dict[str, np.ndarray]) -> np.ndarray:
        """The logits of a batch, as `call` gives them: (batch, words, max_width, labels) or (batch, words, labels, 3).

        Args:
            model, inputs: Same as in `Task.outputs_by_onnx`.
        """
        words, labels = inputs["word_positions"], inputs["label_positions"]
        has_no_token = (words < 0) & (np.arange(words.shape[1]) < inputs["word_counts"][:, None])
        if has_no_token.any():  # of which an export knows nothing
            return ops.convert_to_numpy(self(inputs))
        roles = np.zeros_like(inputs["token_ids"])
        for positions, role in ((words, WORD), (labels, LABEL)):
            rows, columns = np.nonzero(positions >= 0)
            roles[rows, positions[rows, columns]] = role
        read = {"token_ids": inputs["token_ids"], "padding_mask": inputs["padding_mask"], "segment_ids": roles}
        logits = model.run(read, ["logits"])["logits"]
        logits = logits[np.arange(len(words))[:, None], np.maximum(words, 0)]
        count = labels.shape[1]
        return logits[:, :, :, :count] if self.span_mode == SPANS else logits[:, :, :count]

    def example_outputs(self, engine: Any) -> tuple[list[np.ndarray], list[np.ndarray], np.ndarray]:
        """The logits of a few rows by the model and by its export, 0 where they mean nothing, and which words count,
        bool (batch, words).

        Args:
            engine: The export.
        """
        config = self.backbone.config
        length, rng = min(11, config.max_length), np.random.default_rng(0)
        num_labels = min(2, self.max_types)
        lengths = np.array([num_labels + 1, length - 2, length])
        words = np.arange(num_labels, length)
        inputs = {
            "token_ids": rng.integers(0, config.vocab_size, (3, length)),
            "padding_mask": np.arange(length) < lengths[:, None],
            "word_positions": np.where(words < lengths[:, None], words, -1),
            "word_counts": lengths - num_labels,
            "label_positions": np.tile(np.arange(num_labels), (3, 1)),
        }
        inputs = {name: array.astype("int32") for name, array in inputs.items()}
        counted = inputs["word_positions"] >= 0
        outputs = [np.array(self.predict_on_batch(inputs)), self.outputs_by_onnx(engine, inputs)]
        if self.span_mode == SPANS:
            last = np.arange(len(words))[:, None] + np.arange(self.max_width)
            beyond = last >= inputs["word_counts"][:, None, None]
            outputs = [np.where(beyond[..., None], 0.0, logits) for logits in outputs]
        return outputs[:1], outputs[1:], counted

    # ---- use

    def tag(
        self,
        x: Any,
        labels: Sequence[str],
        threshold: float = 0.5,
        nested: bool = False,
        batch_size: int = 32,
        verbose: Any = 0,
    ) -> list:
        """The entities of texts of any length that have one of some labels.

        Args:
            x: A text, a list of texts, or a list of sentences that are lists of words (characters then count in the
                words joined by spaces).
            labels: The label names.
            threshold: The least probability of an entity, from 0 to 1.
            nested: Whether an entity may lie inside another. Spans never cross, and no span gets two labels.
            batch_size: Rows at once.
            verbose: 1 shows a progress bar.

        Returns:
            For one text a list, for several a list of lists, of dicts in the order of the text: `text`, which is
            exactly `x[start:end]`; `label`; `score`, the probability; `start` and `end` in characters. No word is
            split: an entity begins and ends where words do.

        Raises:
            ValueError: There is no label, two are equal, or `threshold` is out of its range.
        """
        if not 0 <= threshold <= 1:
            raise ValueError(f"threshold must be a probability, from 0 to 1. Received: {threshold!r}.")
        self.data.require_tokenizer()
        examples = self.data.parse(x)
        found = self._candidates(examples, labels, threshold, batch_size, verbose)
        return examples.unwrap(
            [
                answer_of_text(text, words, labels, select_entities(candidates, nested))
                for text, words, candidates in zip(examples["text"], examples["words"], found)
            ]
        )

    def _candidates(
        self, examples: Examples, labels: Sequence[str], threshold: float, batch_size: int, verbose: Any
    ) -> list[list[Candidate]]:
        """The spans of each text that may be entities, in the order in which equal ones are preferred."""
        found: list[list[Candidate]] = [[] for _ in range(len(examples))]
        rows, of_spans = self.data.rows_to_answer(examples, labels), self.span_mode == SPANS
        if rows.windows:
            data = rows.dataset(batch_size=batch_size)
            outputs = (np.asarray(row) for batch in self.predict_each(data, None, verbose) for row in batch)
            for row, logits in zip(data.row_order.tolist(), outputs):
                window, prompt = rows.windows[row], rows.prompts[row]
                found[window.text] += find_candidates(logits, window, prompt, threshold, of_spans)
        for candidates in found:
            candidates.sort(key=lambda one: one.sort_key(of_spans))
        return found

    def predict_examples(self, examples: Examples, batch_size: int | None, **options: Any) -> Any:
        """Refuses texts without label names.

        Args:
            examples, batch_size, options: Same as in `Task.predict_examples`.

        Raises:
            ValueError: Always.
        """
        raise ValueError(NO_LABELS)

    # ---- training

    def default_loss(self) -> EntityLoss:
        return EntityLoss()

    def compile(self, optimizer: Any = None, *options: Any, **kwargs: Any) -> None:
        """As `Task.compile`; without an optimizer, the layers after the encoder train at 5 times the encoder's rate.

        Args:
            optimizer, options, kwargs: Same as in `Task.compile`.
        """
        if optimizer is None:
            rate = self.backbone.config.default_learning_rate
            optimizer = AdamW(rate, lr_multipliers={"entities/": HEAD_RATE})
            print_message(
                f"compile: AdamW, peak rate {rate:g} for the encoder and {HEAD_RATE * rate:g} for the layers after it, "
                "10 % warm-up then linear decay, weight decay 0.01 except on biases and LayerNorm, clipped to norm 1"
            )
        super().compile(optimizer, *options, **kwargs)
