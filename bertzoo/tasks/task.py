"""What all tasks share: an encoder with a head, and `fit`, `evaluate` and `predict` on raw text."""

from collections.abc import Callable
from typing import Any

import keras
import numpy as np

from bertzoo._keras_hooks import print_message
from bertzoo.adapters.serialization import apply_adapters_config, get_adapters_config
from bertzoo.data.batches import SeededDataset
from bertzoo.data.parsing import Examples
from bertzoo.data.streams import StreamDataset, is_batch_stream, refuse_steps_without_stream
from bertzoo.data.task_data import TaskData, is_tokenized
from bertzoo.data.training_batches import training_batches_and_num_updates
from bertzoo.data.window_data import WindowedData
from bertzoo.models.encoder import Encoder
from bertzoo.random import Salt, fold_in
from bertzoo.tasks.compiled import CompiledTask
from bertzoo.tasks.onnx_inference import OnnxInference
from bertzoo.tasks.presets import PresetTask
from bertzoo.text.encoded import Encoded
from bertzoo.text.tokenizer import Tokenizer
from bertzoo.training.callbacks import NaNGuard, check_learning_rate_callbacks, prepend_callback
from bertzoo.training.optimizer import AdamW
from bertzoo.types import Tensor


class Task(OnnxInference, CompiledTask, PresetTask):
    """An encoder with a head, fit on raw text. The base of all tasks; see `TextClassifier` for one to use.

    Subclasses make their head, name it in `heads` where it is one of the family's (it is then an attribute of this
    name), set `data`, which turns what users pass into batches, and implement `call`.

    Args:
        backbone: The encoder.
        tokenizer: Turns text into the encoder's inputs; None if the caller tokenizes.

    Raises:
        ValueError: The encoder's family has no such head.
    """

    def __init__(self, backbone: Encoder, tokenizer: Tokenizer | None = None, *, name: str, **kwargs):
        super().__init__(name=name, **kwargs)
        lacking = [head for head in self.heads if head not in backbone.family.heads]
        if lacking:
            raise ValueError(
                f"{backbone.family.hf_name} has no head {lacking[0]!r}; it has "
                f"{', '.join(sorted(backbone.family.heads))}."
            )
        self.backbone, self.data = backbone, TaskData(tokenizer, backbone.config)

    def make_head(self, name: str, *args) -> keras.layers.Layer:
        """A head of the encoder's family; `args` are those of `Family.head`.

        Raises:
            ValueError: The head reads the pooler, and the encoder was made without one.
        """
        family = self.backbone.family
        if name in family.pooled_heads and self.backbone.pooler is None:
            raise ValueError(
                f"the head {name!r} of {family.hf_name} reads the pooler: make the encoder with pooler=True."
            )
        return family.build_head(self.backbone.dropout_config, name, *args, dtype=self.dtype_policy)

    def build(self, input_shape: Any = None) -> None:
        for head in self.heads:
            getattr(self, head).build((None, None, self.backbone.config.hidden_size))

    @property
    def tokenizer(self) -> Tokenizer | None:
        """What turns texts into tokens; None if the caller tokenizes."""
        return self.data.tokenizer

    @tokenizer.setter
    def tokenizer(self, tokenizer: Tokenizer | None) -> None:
        self.data.tokenizer = tokenizer

    def encode_inputs(
        self, inputs: Any, training: bool, query_positions: Tensor | None = None
    ) -> tuple[dict[str, Tensor], Tensor | None]:
        """The encoder's outputs, and a dropout key for the head (None at inference). `query_positions`: see
        `Encoder.call`."""
        key = None
        if training:
            calls = self.backbone.step
            # A perturbed batch is compared with the plain one, so it is the same call, with the same dropout.
            again = isinstance(inputs, dict) and "perturbation" in inputs
            key = calls.current_key() if again else calls.next_key()
        outputs = self.backbone(inputs, training=training, dropout_key=key, query_positions=query_positions)
        return outputs, fold_in(key, Salt.HEAD) if training else None

    def compute_output_spec(self, *args, **kwargs) -> Any:
        # Heads compute in float32, whatever the policy.
        outputs = super().compute_output_spec(*args, **kwargs)
        return keras.tree.map_structure(lambda output: keras.KerasTensor(output.shape, "float32"), outputs)

    def batches(
        self,
        x: Any,
        y: Any = None,
        sample_weight: Any = None,
        *,
        batch_size: int | None = None,
        shuffle: bool = True,
        steps: int | None = None,
    ) -> keras.utils.PyDataset:
        """The dataset that `fit` makes of its arguments, for training loops of your own.

        Args:
            x: Texts in any form that `fit` takes, a stream of batches, or, without a tokenizer, a dict of arrays.
            y: Targets, where x does not hold them.
            sample_weight: float (n,).
            batch_size: Examples in a batch; 32 where None.
            shuffle: A seeded order, another one in each epoch; else the rows are sorted by length.
            steps: Batches of a stream in an epoch.
        """
        return self.data.batches(x, y, sample_weight, batch_size=batch_size, shuffle=shuffle, steps=steps)

    def fit(
        self,
        x: Any = None,
        y: Any = None,
        batch_size: int | None = None,
        epochs: int = 1,
        verbose: Any = "auto",
        callbacks: Any = None,
        validation_split: float = 0.0,
        validation_data: Any = None,
        shuffle: bool = True,
        class_weight: Any = None,
        sample_weight: Any = None,
        initial_epoch: int = 0,
        steps_per_epoch: int | None = None,
        validation_steps: int | None = None,
        validation_batch_size: int | None = None,
        validation_freq: Any = 1,
    ) -> keras.callbacks.History:
        """As `keras.Model.fit`, on raw text.

        `x` may be a list, array or Series of strings; pairs as a tuple of two columns or a list of tuples; a list of
        dicts; a pandas frame, `datasets.Dataset` or dict of columns with the targets in it; a PyDataset,
        tf.data.Dataset, torch DataLoader or grain loader of batches, which keep their own order. `validation_data` is a
        tuple (x, y) or (x, y, sample weights), or x alone where it holds the targets. `validation_split` is the part
        of the examples that is kept for validation, drawn by the seed, and stratified where there are classes.

        A `LearningRateScheduler` needs an optimizer without a schedule of its own.
        """
        if not self.compiled:
            raise ValueError("call compile() before fit(); without arguments it takes the paper's recipe.")
        self.refuse_training_by_onnx()
        if not is_batch_stream(x):
            x, y = self.data.parse(x, y), None
            if verbose and x.description:
                print_message(f"fit: {x.description}")
        if validation_split and validation_data is None:
            (x, y, sample_weight), validation_data = self.data.split_validation(x, y, sample_weight, validation_split)
        train = self.batches(x, y, sample_weight, batch_size=batch_size, shuffle=shuffle, steps=steps_per_epoch)
        steps = min(len(train), steps_per_epoch or len(train))
        validation_data = self._validation(validation_data, validation_batch_size or batch_size, validation_steps)
        optimizer = self._built_optimizer(callbacks)
        weights = self.data.class_weight_array(class_weight)
        data, updates = training_batches_and_num_updates(train, optimizer, weights, steps, initial_epoch, epochs)
        if isinstance(optimizer, AdamW):
            optimizer.set_total_steps(max(1, updates))
        self.begin_fit(steps * epochs, steps * initial_epoch)
        for first in (NaNGuard(), train.initial_epoch_callback(initial_epoch)):
            callbacks = prepend_callback(callbacks, first)
        return super().fit(
            self.dataset_on_device(data),
            epochs=epochs,
            verbose=verbose,
            callbacks=callbacks,
            validation_data=validation_data,
            shuffle=False,
            initial_epoch=initial_epoch,
            steps_per_epoch=steps_per_epoch,
            validation_steps=validation_steps,
            validation_freq=validation_freq,
        )

    def begin_fit(self, total_steps: int, done: int) -> None:
        """Called when `fit` knows its steps.

        Args:
            total_steps: Those of all epochs.
            done: How many come before `initial_epoch`.
        """

    def _built_optimizer(self, callbacks: Any) -> keras.optimizers.Optimizer:
        """The optimizer with its variables, whose rate the callbacks may set."""
        if not self.optimizer.built:  # TensorFlow traces the step twice where its first trace makes the moments
            self.optimizer.build(self.trainable_variables)
        # With float16, Keras wraps the optimizer in one that scales the loss.
        optimizer = getattr(self.optimizer, "inner_optimizer", self.optimizer)
        check_learning_rate_callbacks(optimizer, callbacks)
        return optimizer

    def _validation(self, data, batch_size: int | None, steps: int | None) -> keras.utils.PyDataset | None:
        if data is None:
            return None
        if isinstance(data, tuple) and 2 <= len(data) <= 3:  # a list has rows
            return self.data.batches(*data, batch_size=batch_size, shuffle=False, with_targets=True)
        return self.data.batches(data, batch_size=batch_size, steps=steps, shuffle=False, with_targets=True)

    def evaluate(
        self,
        x: Any = None,
        y: Any = None,
        batch_size: int | None = None,
        verbose: Any = "auto",
        sample_weight: Any = None,
        steps: int | None = None,
        callbacks: Any = None,
        return_dict: bool = False,
        **kwargs,
    ) -> Any:
        """As `keras.Model.evaluate`, on raw text in any form that `fit` takes. The loss is Σ weight · loss / Σ weight
        over all examples, the same for every `batch_size`, except where a loss compares the rows of a batch."""
        if not kwargs.pop("_use_cached_eval_dataset", False):
            x = self.data.batches(
                x, y, sample_weight, batch_size=batch_size, steps=steps, shuffle=False, with_targets=True
            )
        return super().evaluate(x, verbose=verbose, steps=steps, callbacks=callbacks, return_dict=return_dict, **kwargs)

    def predict(
        self,
        x: Any,
        batch_size: int | None = None,
        verbose: Any = "auto",
        steps: int | None = None,
        callbacks: Any = None,
    ) -> Any:
        """Logits, in the order of x; as `keras.Model.predict`, on raw text in any form that `fit` takes. `steps` counts
        batches of a stream."""
        return self.logits(x, batch_size, verbose=verbose, steps=steps, callbacks=callbacks)

    def logits(self, x: Any, batch_size: int | None = None, *, prompt: str = "", **options) -> Any:
        """The model's outputs in the order of x. `predict` gives these, or what a subclass makes of them.

        Args:
            x, batch_size: As for `predict`.
            prompt: Text before the first text of each example.
            options: `verbose`, `steps` and `callbacks` of `keras.Model.predict`.
        """
        options = {"verbose": 0, **options}
        if not is_batch_stream(x):
            refuse_steps_without_stream(options.pop("steps", None))
            examples = self.data.add_prompt(self.data.parse(x), prompt).without_targets()
            return self.predict_examples(examples, batch_size, **options)
        data = self.data.batches(x, steps=options.get("steps"), prompt=prompt)
        outputs = self.predict_batches(data, **options)
        return data.unsort(outputs) if isinstance(data, SeededDataset) else outputs

    def predict_examples(self, examples: Examples, batch_size: int | None, **options) -> Any:
        """The model's outputs in the order of the examples; `options` are those of `keras.Model.predict`."""
        data = self.data.batches(examples, batch_size=batch_size, shuffle=False)
        return data.unsort(self.predict_batches(data, **options))

    # ---- serialisation in Keras's own formats

    def get_config(self) -> dict[str, Any]:
        own = {key: keras.saving.serialize_keras_object(getattr(self, key)) for key in self.config_keys}
        return {
            "backbone": keras.saving.serialize_keras_object(self.backbone),
            "tokenizer": self.tokenizer.get_config() if self.tokenizer else None,
            "name": self.name,
            "dtype": keras.saving.serialize_keras_object(self.dtype_policy),
            **own,
            **get_adapters_config(self),
        }

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: Any = None) -> Any:
        config = dict(config)
        adapters = config.pop("adapters", None)
        for key in ("backbone", *cls.config_keys):
            config[key] = keras.saving.deserialize_keras_object(config[key], custom_objects)
        if config["tokenizer"] is not None:
            config["tokenizer"] = Tokenizer.from_config(config["tokenizer"])
        task = cls(**config)
        apply_adapters_config(task, adapters)
        return task


class WindowedTask(Task):
    """A task with an output for each token, on texts of any length, cut into windows. Its `data` is `WindowedData`.

    `predict` gives a list of float32 (tokens, logits), one for each text, joined from windows, special tokens left out;
    for a dict of arrays (without a tokenizer) float32 (n, length, logits), 0 at padding; and for a stream of batches of
    arrays what `keras.Model.predict` gives.
    """

    data: WindowedData

    def logits(self, x: Any, batch_size: int | None = None, **options) -> Any:
        if is_batch_stream(x) and not isinstance(x, SeededDataset):
            x = StreamDataset(x, _inputs_alone, options.get("steps"))
        return super().logits(x, batch_size, **options)

    def predict_examples(self, examples: Examples, batch_size: int | None, **options) -> list[np.ndarray] | np.ndarray:
        if self.tokenizer is not None:
            windows = self.data.make_windows(examples)
            return windows.join_outputs(self.predict_rows(windows.rows, batch_size, **options))
        rows = self.predict_rows(self.data.encode(examples), batch_size, **options)
        outputs = np.zeros((*np.shape(examples["token_ids"]), rows[0].shape[-1] if rows else 0), dtype="float32")
        for row, logits in enumerate(rows):
            outputs[row, : len(logits)] = logits
        return outputs

    def predict_rows(
        self, encoded: Encoded, batch_size: int | None = None, verbose: Any = 0, callbacks: Any = None
    ) -> list[np.ndarray]:
        """Logits of each row of tokens, (length, …), without padding, in the order of the rows."""
        if len(encoded) == 0:
            return []
        data = self.data.make_dataset(encoded, batch_size=batch_size)
        outputs = [row for batch in self.predict_each(data, None, verbose, callbacks) for row in batch]
        in_order: list = [None] * len(encoded)
        for row, output in zip(data.row_order, outputs):
            in_order[row] = np.asarray(output)[: encoded.lengths[row]]
        return in_order


def _inputs_alone(batch: tuple, width: Callable) -> tuple:
    """A batch of a stream to predict from, without its targets."""
    if not is_tokenized(batch[0]):
        raise ValueError(
            "the stream gives texts, which are cut into windows: pass them as a list, or batches with token_ids."
        )
    return batch[:1]


def token_ids_shape(input_shape: Any) -> tuple[int | None, ...]:
    """The shape of `token_ids` among inputs, a dict or `token_ids` alone."""
    return tuple(input_shape["token_ids"] if isinstance(input_shape, dict) else input_shape)
