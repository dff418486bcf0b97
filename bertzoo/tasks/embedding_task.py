"""What tasks share that turn each text into vectors: texts in batches, prompts, and losses of several texts."""

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import count
from typing import Any, ClassVar

import keras
import numpy as np
from keras import ops

from bertzoo._keras_hooks import unlocked_layer
from bertzoo.checkpoints.sentence_transformers import document_prompt_name
from bertzoo.data.batches import SeededDataset
from bertzoo.data.labels import encode_sentence_targets
from bertzoo.data.streams import ROWS_AT_ONCE, is_text_loader, iterate_chunks
from bertzoo.data.tuple_data import TupleData, flatten_tuple_inputs
from bertzoo.losses.base import SentenceLoss
from bertzoo.losses.names import get_sentence_loss
from bertzoo.tasks.mini_batches import check_mini_batch_size, map_mini_batches
from bertzoo.tasks.sentence_modules import PromptedTask
from bertzoo.tasks.task import Task
from bertzoo.types import Tensor

LONG_WORK = 100  # batches from which on a progress bar is shown


class EmbeddingTask(PromptedTask, Task):
    """The base of tasks whose `encode` gives the vectors of texts, and whose `fit` compares those of several.

    Subclasses set `data`, and `width`, the numbers in a vector.
    """

    data: TupleData
    width: int
    encode: Callable[..., Any]  # texts -> their vectors, in their order
    training_head: keras.layers.Layer | None  # the loss's
    needs_targets = False  # some losses compare the texts of a row alone
    # Whether the output for a text is a vector for each of its tokens.
    token_vectors: ClassVar[bool] = False
    # Whether, in training, a loss can have the vectors of all layers.
    gives_layers: ClassVar[bool] = False
    mini_batch_size: int | None = None

    def call(self, inputs: Any, training: bool = False) -> Tensor:
        inputs = dict(inputs) if isinstance(inputs, dict) else {"token_ids": inputs}
        key = self.backbone.step.next_key() if training else None
        in_tuples = len(inputs["token_ids"].shape) == 3
        if self.mini_batch_size is None or not (training or in_tuples or "first_texts" in inputs):
            return self.embed(inputs, key)
        embed = self.compiled_part(type(self).embed)
        return map_mini_batches(lambda part: embed(self, part, key), inputs, self.mini_batch_size)

    @property
    def runs_in_parts(self) -> bool:
        return self.mini_batch_size is not None

    def embed(self, inputs: dict[str, Tensor], key: Tensor | None) -> Tensor:
        """The vectors of texts (batch, …), or of tuples of texts (batch, columns, …).

        Args:
            inputs: The encoder's, and others that `embed_texts` reads. With `text_index`, int32 (batch, columns), the
                numbers of the texts in each tuple, texts (batch, …) are read once, however many tuples have them.
            key: The dropout key; None at inference.
        """
        columns = ops.shape(inputs["token_ids"])[1:-1]
        if "text_index" in inputs:
            texts = {name: x for name, x in inputs.items() if name != "text_index"}
            return ops.take(self.embed_texts(texts, key), inputs["text_index"], axis=0)
        if not columns:
            return self.embed_texts(dict(inputs), key)
        vectors = self.embed_texts(flatten_tuple_inputs(inputs), key)
        return ops.reshape(vectors, (-1, *columns, *ops.shape(vectors)[1:]))

    def embed_texts(self, inputs: dict[str, Tensor], key: Tensor | None) -> Tensor:
        """The vectors of texts, (batch, …).

        Args:
            inputs, key: As for `embed`.
        """
        raise NotImplementedError

    # ---- texts to vectors

    @property
    def includes_prompt(self) -> bool:
        """Whether the vectors are also those of a prompt's tokens."""
        return True

    def encode_query(self, texts: Any, **options: Any) -> Any:
        """As `encode`, for queries: with the prompt "query", or none if the model has no such prompt, unless `prompt`
        or `prompt_name` chooses another.

        Args:
            texts, options: Same as in `encode`.
        """
        return self.encode(texts, **self._options_for("query", options))

    def encode_document(self, texts: Any, **options: Any) -> Any:
        """As `encode`, for documents: with the first of the prompts "document", "passage" and "corpus" that the model
        has, or none, unless `prompt` or `prompt_name` chooses another.

        Args:
            texts, options: Same as in `encode`.
        """
        return self.encode(texts, **self._options_for("document", options))

    def _options_for(self, prompt_type: str, options: dict[str, Any]) -> dict[str, Any]:
        name = "query" if prompt_type == "query" else document_prompt_name(self.prompts)
        if options.get("prompt") is None and options.get("prompt_name") is None:
            options = {**options, "prompt": self.prompts.get(name or "", "")}
        return {**options, "prompt_type": prompt_type}

    def encode_texts(
        self,
        texts: Any,
        prompt: str,
        prompt_type: Any,
        batch_size: int | None,
        show_progress_bar: bool | None,
        finish: Callable[[Any], Any] = lambda vectors: vectors,
    ) -> Any:
        """The vectors of texts in any form that `encode` takes: all, those of a single string, or an iterator of them.

        Args:
            texts, batch_size, show_progress_bar: As for `encode`.
            prompt: Put before each text.
            prompt_type: What the texts are: "query", "document", or None.
            finish: What is done to the vectors of several texts.
        """
        kind = getattr(prompt_type, "value", prompt_type)
        if kind not in (None, "query", "document"):
            raise ValueError(f'prompt_type must be "query", "document" or None. Received: {prompt_type!r}.')
        if hasattr(texts, "__next__"):
            chunks = self._vectors_of(iterate_chunks(texts, ROWS_AT_ONCE), prompt, kind, batch_size, False)
            return (vector for vectors in chunks for vector in finish(vectors))
        if is_text_loader(texts):
            texts = [text for batch in texts for text in batch["text"]]
        (vectors,) = map(finish, self._vectors_of([texts], prompt, kind, batch_size, show_progress_bar))
        return vectors[0] if isinstance(texts, str) else vectors

    def _vectors_of(
        self, chunks: Iterable, prompt: str, kind: str | None, batch_size: int | None, bar: bool | None
    ) -> Iterator:
        """The vectors of each chunk of texts, in the batch shapes of the first: others would be compiled anew."""
        lengths = None
        for rows in chunks:
            data = self.data.text_batches(rows, prompt, self.includes_prompt, batch_size, lengths, kind)
            if data is None:
                yield self.no_vectors()
                continue
            if lengths is None and self.tokenizer is not None:
                batch_size = data.batch_size
                lengths = np.union1d(data.lengths, self.tokenizer.max_length or self.backbone.config.max_length)
            yield self.vectors_of_batches(data, _progress_callback(len(data), bar))

    def vectors_of_batches(self, data: SeededDataset, callback: keras.callbacks.Callback) -> Any:
        """The vectors of texts, in their order.

        Args:
            data: The batches.
            callback: Shows the progress of `predict`.
        """
        raise NotImplementedError

    def no_vectors(self) -> Any:
        """The vectors of no texts."""
        raise NotImplementedError

    # ---- training

    def compile(
        self,
        optimizer: Any = None,
        loss: Any = None,
        *options: Any,
        column_prompts: Sequence[str] = (),
        mini_batch_size: int | None = None,
        no_duplicates: bool | None = None,
        **kwargs: Any,
    ) -> None:
        """As `Task.compile`.

        Losses that compare the rows of a batch ("multiple_negatives", "cosent") are another number at another
        `batch_size`, in `evaluate` too, and accumulated batches are not one large batch to them. With a
        `mini_batch_size` memory hardly depends on the `batch_size`, which may be many thousands.

        Args:
            optimizer, options, kwargs: Same as in `Task.compile`.
            column_prompts: What `fit` and `evaluate` put before the texts of each column, such as ("query: ",
                "passage: "), the last of them before all further columns too.
            mini_batch_size: The examples whose texts the encoder reads at once, where batches are larger. Vectors, loss
                and update are those of the whole batch, dropout included (Gao et al. 2021); each text is read twice.
            no_duplicates: Whether `fit` keeps equal texts out of a batch, as far as others are left, in an order that
                the seed gives; where None, for losses whose negatives are the texts of other examples.
            loss: One of `bertzoo.losses`, the task's own where None; or of those of one vector a text its name:
                "cosine" and "cosent" (pairs and scores), "softmax" (pairs and classes), "triplet" (anchor, positive,
                negative), "multiple_negatives" (anchor, positive, and negatives if any), "margin_mse" (query, positive,
                negatives, and a teacher's margins), "distillation" (texts and a teacher's vectors).
        """
        loss = self.default_loss() if loss is None else get_sentence_loss(loss)
        self._check_loss(loss)
        if column_prompts and not self.includes_prompt:
            raise ValueError(
                "column_prompts needs a Pooling(include_prompt=True), which reads prompts too. Received: "
                f"{column_prompts!r:.60} with include_prompt=False."
            )
        loss.build_for_width(self.width, self.backbone.config.initializer_range)
        if getattr(self, "training_head", None) is not None:
            del self.training_head
        with unlocked_layer(self):  # this layer comes and goes
            self.training_head = loss.head
        if mini_batch_size is not None:
            check_mini_batch_size(mini_batch_size)
        self.mini_batch_size = mini_batch_size
        prompts = [column_prompts] if isinstance(column_prompts, str) else column_prompts
        self.data.set_loss(loss, prompts, mini_batch_size, no_duplicates)
        super().compile(optimizer, loss, *options, **kwargs)

    def get_compile_config(self) -> dict[str, Any] | None:
        config = super().get_compile_config()
        return config and {**config, **self.data.loss_options}

    def _check_loss(self, loss: SentenceLoss) -> None:
        if loss.token_vectors != self.token_vectors:
            expected = "a vector for each token" if self.token_vectors else "one vector a text"
            raise ValueError(f"{type(self).__name__} needs a loss of {expected}. Received: {type(loss).__name__}.")
        if loss.reads_layers and not self.gives_layers:
            raise ValueError(
                f"{type(self).__name__} needs a loss of the last layer's vectors. Received: {type(loss).__name__}, "
                "which reads those of all layers, as only SentenceEncoder gives them."
            )

    def batch_loss(self, x: Any, y: Any, y_pred: Tensor, sample_weight: Any, training: bool) -> Tensor:
        """The mean loss over a batch's rows.

        Args:
            x, y, y_pred, sample_weight, training: As `keras.Model.compute_loss`.
        """
        # A stream's batches are not looked at before: they may be to predict from.
        in_tuples = len(y_pred.shape) - self.token_vectors > 2
        self.data.require_loss().check_columns(range(y_pred.shape[1] if in_tuples else 1))
        if y is None:  # an error, unless the loss leaves targets aside
            y = encode_sentence_targets(None, self.data.require_loss().target, 1)
        return super().batch_loss(x, y, y_pred, sample_weight, training)


def _progress_callback(batches: int, bar: bool | None) -> keras.callbacks.Callback:
    """A callback of `predict` that shows a progress bar; where None, for long work in an interactive session."""
    if bar is None:
        bar = batches >= LONG_WORK and (sys.stdout.isatty() or hasattr(sys, "ps1"))  # of notebooks too
    progress, done = keras.utils.Progbar(batches, verbose=1 if bar else 0), count(1)
    return keras.callbacks.LambdaCallback(on_predict_batch_end=lambda batch, logs: progress.update(next(done)))
