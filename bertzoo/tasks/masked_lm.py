"""Masked language modelling: guess the words behind [MASK] (Devlin et al. 2019, section 3.1)."""

import dataclasses
from typing import Any

import keras
import numpy as np

from bertzoo.data.parsing import Examples
from bertzoo.data.task_data import MaskedData
from bertzoo.models.encoder import Encoder
from bertzoo.tasks.answers.masked_words import best_tokens, fill_masks, target_ids
from bertzoo.tasks.task import Task
from bertzoo.text.masking import Masking
from bertzoo.text.tokenizer import Tokenizer
from bertzoo.training.compiled_losses import MEAN
from bertzoo.types import Tensor


class MaskingTask(Task):
    """A task with the masked-LM head, which masks texts by a rule, BERT's 15 % and 80/10/10 where `masking` is None."""

    per_token = True

    def __init__(self, backbone: Encoder, tokenizer: Tokenizer | None, masking: Masking | None, **kwargs):
        super().__init__(backbone, tokenizer, **kwargs)
        if masking is None and tokenizer is not None:
            masking = Masking.for_tokenizer(tokenizer)
        self.masking: Any = masking  # None only without a tokenizer, and then there is nothing to mask
        self.masked_lm = self.make_head("masked_lm")

    def _logits_shape(self, input_shape: Any) -> tuple[int | None, ...]:
        """The shape of the logits, (batch, masked positions or length, vocabulary)."""
        if isinstance(input_shape, dict):
            input_shape = input_shape.get("mask_positions", input_shape["token_ids"])
        return (*input_shape, self.backbone.config.vocab_size)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "masking": None if self.masking is None else dataclasses.asdict(self.masking)}

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: Any = None) -> Any:
        return super().from_config({**config, "masking": Masking.from_config(config.get("masking"))}, custom_objects)


@keras.saving.register_keras_serializable("bertzoo")
class MaskedLM(MaskingTask):
    """An encoder with its masked-LM head, whose decoder is the token table.

    `fit(texts)` masks anew in each epoch, on the host, from the seed; in `evaluate`, a row's masks do not depend on its
    batch. A text that is longer than the model takes is read whole, in rows one after the other; pairs are cut. The
    loss is the mean over the masked tokens, and `perplexity` e to its power (`val_perplexity` in `fit`).
    Called with `mask_positions` int (batch, positions) among its inputs, it gives float32 logits (batch, positions,
    vocabulary) for those; without, for all tokens (batch, length, vocabulary).

    Args:
        backbone: The encoder.
        tokenizer: Turns text into the encoder's inputs; None if the caller tokenizes.
        masking: The rule; BERT's 15 % and 80/10/10 where None.
        name: Name of the Keras model.

    Example:
        >>> model = bz.MaskedLM.from_preset("bert_mini_en", verbose=False)
        >>> [answer["token"] for answer in model.fill_mask("She plays the [MASK] in an orchestra.", top_k=2)]
        ['piano', 'violin']
    """

    data: MaskedData
    heads = ("masked_lm",)

    def __init__(
        self,
        backbone: Encoder,
        tokenizer: Tokenizer | None = None,
        masking: Masking | None = None,
        name: str = "masked_lm_task",
        **kwargs,
    ):
        super().__init__(backbone, tokenizer, masking, name=name, **kwargs)
        self.data = MaskedData(tokenizer, backbone.config, self.masking)
        self.build()

    def call(self, inputs: Any, training: bool = False) -> Tensor:
        inputs = dict(inputs) if isinstance(inputs, dict) else {"token_ids": inputs}
        positions = inputs.pop("mask_positions", None)
        outputs = self.backbone(inputs, training=training, decoder=self.masked_lm, query_positions=positions)
        return self.masked_lm(outputs["decoded_output"], self.backbone.token_embedding_table())

    def compute_output_shape(self, input_shape: Any) -> Any:
        return self._logits_shape(input_shape)

    def onnx_outputs(self, nodes: Any) -> dict[str, Any]:
        hidden, size = nodes.decoded(self.masked_lm), self.backbone.config.vocab_size
        outputs = {"logits": nodes.padded(nodes.head(self.masked_lm, hidden), size)}
        if self.tokenizer is not None and self.tokenizer.mask_id is not None:
            # Alone, without a vocabulary of logits for each token.
            masked = nodes.at_id(self.tokenizer.mask_id, hidden)
            outputs["mask_logits"] = nodes.masks(nodes.head(self.masked_lm, masked), size)
        return outputs

    def exported_settings(self) -> dict[str, Any]:
        return {**super().exported_settings(), "mask_token_id": self.tokenizer and self.tokenizer.mask_id}

    def outputs_by_onnx(self, model: Any, inputs: dict[str, np.ndarray]) -> np.ndarray:
        """Logits float32 (batch, length or positions, vocabulary), as `Task.outputs_by_onnx`.

        Args:
            model, inputs: Same as in `Task.outputs_by_onnx`.
        """
        inputs = dict(inputs)
        positions = inputs.pop("mask_positions", None)
        logits = super().outputs_by_onnx(model, inputs)
        return logits if positions is None else np.take_along_axis(logits, positions[:, :, None], axis=1)

    def default_loss(self) -> Any:
        return keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction=MEAN)

    def default_metrics(self) -> list:
        return [keras.metrics.SparseCategoricalAccuracy(name="masked_accuracy")]

    def _loss_mean_options(self) -> dict[str, Any]:
        return {"perplexity": isinstance(self.loss, keras.losses.SparseCategoricalCrossentropy)}

    def predict_examples(self, examples: Examples, batch_size: int | None, **options: Any) -> np.ndarray:
        """Logits at the [MASK] tokens of each text, float32 (texts, most masks in a text, vocabulary); 0 where a text
        has fewer.

        Args:
            examples, batch_size, options: As for `Task.predict_examples`.
        """
        data, counts = self.data.dataset_and_mask_counts(examples, batch_size)
        logits = data.unsort(self.predict_batches(data, **options))
        logits[np.arange(logits.shape[1]) >= counts[:, None]] = 0
        return logits

    def fill_mask(self, x: Any, top_k: int = 5, targets: str | list[str] | None = None, batch_size: int = 32) -> list:
        """The likeliest tokens for each [MASK].

        Args:
            x: A text, or a list of texts, each with one [MASK] or more.
            top_k: How many to give.
            targets: Only these words compete; each must be one token of the vocabulary.
            batch_size: Texts at once.

        Returns:
            For one text with one [MASK], a list of dicts with `token`, `score` (its probability) and `text` (with the
            token in place), best first; with several, a list of such lists, one a [MASK]. For a list of texts, a list
            of these.

        Raises:
            ValueError: A text has no [MASK], a target is no token, or the task has no tokenizer.
        """
        tokenizer = self.data.require_tokenizer()
        texts = [x] if isinstance(x, str) else list(x)
        for text in texts:
            if not isinstance(text, str):
                raise TypeError(f"fill_mask takes single texts, not pairs. Received: {text!r:.60}.")
        if not texts:
            return []
        # Tables of some models have more rows than there are tokens.
        ids = np.arange(tokenizer.vocabulary_size) if targets is None else target_ids(tokenizer, targets)
        mask = tokenizer.id_to_token(self.data.masking.mask_id)
        answers: list = []
        for text, rows in zip(texts, self.predict(texts, batch_size=batch_size, verbose=0)):
            count = text.count(mask)
            if not count:
                raise ValueError(f"there is no {mask} in {text!r:.80}.")
            if count > len(rows) or not np.any(rows[count - 1]):
                raise ValueError(f"a {mask} lies beyond the model's {tokenizer.max_length} tokens in {text!r:.80}.")
            filled = fill_masks(tokenizer, text, *best_tokens(rows[:count], ids, top_k))
            masks = [[{"token": one.token, "score": one.score, "text": one.text} for one in best] for best in filled]
            answers.append(masks[0] if count == 1 else masks)
        return answers[0] if isinstance(x, str) else answers
