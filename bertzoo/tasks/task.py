"""What all tasks share: an encoder with a head and a tokenizer, presets, and `fit` on raw text."""

from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import keras
import numpy as np

from bertzoo.adapters.serialization import adapter_config, apply_adapters
from bertzoo.checkpoints.loading import check_options, load_model, save_model
from bertzoo.data.batches import BucketedDataset, check_batch_size
from bertzoo.data.columns import find_columns, read_columns
from bertzoo.data.shapes import UNCOMPILED_TOKENS, shapes_for, takes_any_shape
from bertzoo.data.streams import StreamDataset, check_steps, is_stream
from bertzoo.data.table_columns import column_names, describe_columns
from bertzoo.data.targets import check_order, label_names, row_weights
from bertzoo.data.training_batches import for_training
from bertzoo.data.validation_split import split_arrays, split_columns
from bertzoo.models.config import EncoderConfig
from bertzoo.models.encoder import Encoder
from bertzoo.models.registry import read_architecture
from bertzoo.random import Salt, fold_in, get_seed
from bertzoo.tasks.compiled import CompiledTask
from bertzoo.tasks.custom_head import restore
from bertzoo.tasks.presets import load_tokenizer
from bertzoo.text.encoded import Encoded, encoded_from_arrays
from bertzoo.text.tokenizer import Tokenizer
from bertzoo.training.callbacks import check_rate_callbacks, with_callback
from bertzoo.training.nan_guard import NaNGuard
from bertzoo.training.optimizer import AdamW
from bertzoo.training.step import BackendStep

BATCH_SIZE = 32


class Task(CompiledTask, BackendStep, keras.Model):
    """An encoder with a head, fit on raw text. The base of all tasks; see `TextClassifier` for one to use.

    Subclasses make their head, state `heads` (the names of the family's heads that they have) and implement `call`.

    Args:
        backbone: The encoder.
        tokenizer: Turns text into the encoder's inputs; None if the caller tokenizes.

    Raises:
        ValueError: The encoder's family has no such head.
    """

    heads: ClassVar[tuple[str, ...]] = ()
    # What follows the family's name in the name of Hugging Face's class; the first head's where None.
    hf_class: ClassVar[str | None] = None
    # Whether batches to train on are drawn whatever their rows' lengths. Where the loss is a mean over rows, rows of
    # like length may share a batch: each weighs the same anyway.
    draws_all_lengths: ClassVar[bool] = False

    def __init__(self, backbone: Encoder, tokenizer: Tokenizer | None = None, *, name: str, **kwargs):
        super().__init__(name=name, **kwargs)
        lacking = [head for head in self.heads if head not in backbone.family.heads]
        if lacking:
            raise ValueError(
                f"{backbone.family.hf_name} has no head {lacking[0]!r}; it has "
                f"{', '.join(sorted(backbone.family.heads))}."
            )
        self.backbone, self.tokenizer = backbone, tokenizer
        self.seed = get_seed()

    def encode_inputs(self, inputs, training: bool, query_positions=None):
        """The encoder's outputs, and a dropout key for the head (None at inference); `query_positions` as
        `Encoder.call` takes them."""
        key = None
        if training:
            calls = self.backbone.step
            # A perturbed batch is compared with itself as it was, so it is the same call, with the same dropout.
            again = isinstance(inputs, dict) and "perturbation" in inputs
            key = calls.this_key() if again else calls.next_key()
        outputs = self.backbone(inputs, training=training, dropout_key=key, query_positions=query_positions)
        return outputs, fold_in(key, Salt.HEAD) if training else None

    def compute_output_spec(self, *args, **kwargs):
        # Heads compute in float32, whatever the policy.
        found = super().compute_output_spec(*args, **kwargs)
        return keras.tree.map_structure(lambda output: keras.KerasTensor(output.shape, "float32"), found)

    # ---- presets

    @classmethod
    def from_preset(
        cls,
        preset: str | Path,
        *,
        max_length: int | None = None,
        lowercase: bool | None = None,
        dtype=None,
        dropout: float | None = None,
        attention_dropout: float = 0.0,
        remat: bool = False,
        new_head: bool = False,
        verbose: bool = True,
        **task_options,
    ) -> "Task":
        """Loads a task from a bundled name, a directory or `hf://owner/name[@revision]`, its head too if the files have
        it.

        Args:
            preset: Where from.
            max_length: Longest input in tokens; what the model has positions for where None.
            lowercase: Overrides what the tokenizer's files say.
            dtype: Keras dtype policy, such as "mixed_bfloat16"; the global one where None.
            dropout, attention_dropout, remat: See `Encoder`.
            new_head: Start with a new head even where the files have one.
            verbose: Print the load report.
            task_options: What the task's constructor takes. `tokenizer=None` leaves the tokenizer's files alone.

        Raises:
            CheckpointError: The files can't be used.
            TypeError: An option is unknown.
        """
        check_options(cls, task_options)
        in_file: list[str] = []

        def make(config: EncoderConfig, directory: Path) -> "Task":
            pooler = cls.needs_pooler(config)
            encoder = Encoder(config, pooler, dropout, attention_dropout, remat, **({"dtype": dtype} if dtype else {}))
            options = cls.options_from_files(config)
            if new_head:
                options = {key: value for key, value in options.items() if key not in ("head", "problem_type")}
            in_file.extend(label_names(options["labels"]) if "labels" in options else ())
            options.update(task_options)
            wanted = task_options.get("labels")
            if isinstance(wanted, (int, np.integer)) and wanted == len(in_file) and not new_head:
                options["labels"] = list(in_file)  # a number of classes leaves them their names
            if isinstance(options.get("head"), dict):
                options["head"] = restore(options["head"])
            if "tokenizer" not in options:
                options["tokenizer"] = load_tokenizer(directory, config, max_length, lowercase)
            return cls(encoder, **({"dtype": dtype} if dtype else {}), **options)

        heads = () if task_options.get("head") is not None else cls.heads
        task = load_model(preset, read_architecture, make, heads=heads, new_heads=new_head, verbose=False)
        if in_file and not set(task.load_report.new) - {"pooler"}:  # the head is the file's, and so its order of labels
            replaced = check_order(task.labels, in_file)
            task.load_report.notes += [replaced] if replaced else []
        if verbose:
            print(task.load_report)
        return task

    @classmethod
    def needs_pooler(cls, config: EncoderConfig) -> bool:
        """Whether the task reads the pooled output of this family."""
        return False

    @classmethod
    def options_from_files(cls, config: EncoderConfig) -> dict[str, Any]:
        """Constructor options that the files of a fine-tuned model hold."""
        return {}

    def config_changes(self) -> dict[str, Any]:
        """Keys of config.json that the task owns."""
        return {}

    def more_files(self) -> dict[str, Any]:
        """What else a preset of the task holds, as `write_preset` takes it."""
        return {}

    def save_to_preset(self, directory: str | Path) -> None:
        """Writes a Hugging Face checkpoint directory, head and tokenizer included, that transformers loads."""
        hf_class = self.hf_class or self.backbone.family.heads[self.heads[0]].hf_class
        tokenizer = self.tokenizer
        save_model(
            self,
            directory,
            heads=self.heads,
            hf_class=hf_class,
            config_changes=self.config_changes(),
            tokenizer=tokenizer,
            more_files=self.more_files(),
        )

    def export(self, filepath, format: str = "tf_saved_model", verbose=False, **options) -> None:
        """Writes a SavedModel, or with `format="onnx"` an ONNX file; see `bertzoo.export.export_model`."""
        from bertzoo.export import export_model

        export_model(self, filepath, format, verbose, **options)

    def push_to_hub(
        self,
        repo_id: str,
        *,
        private: bool = False,
        token: str | None = None,
        commit_message: str = "Upload from bertzoo",
    ) -> None:
        """Saves the preset and uploads it as the Hugging Face repository `owner/name`, with a model card if it has
        none."""
        import tempfile

        from bertzoo.checkpoints.files import push
        from bertzoo.tasks.model_card import model_card

        card = model_card(self, repo_id)
        with tempfile.TemporaryDirectory() as folder:
            self.save_to_preset(Path(folder) / "preset")
            options = {"private": private, "token": token, "commit_message": commit_message}
            push(Path(folder) / "preset", repo_id, **options, card=card)

    # ---- data

    find_columns = staticmethod(find_columns)  # of a table

    def columns_taken(self, table, names: list) -> dict[str, str | None]:
        """Which columns of a table are read, by what they are read as; None where there is none."""
        return self.find_columns(names)

    def read(self, x, y=None) -> NamedTuple:
        """What `fit` takes as columns of one length, the last of them raw targets or None; as they are if read
        before."""
        return read_columns(x, y)

    def encode_rows(self, x, y=None):
        """Raw text -> rows of tokens, and raw targets where there are any."""
        columns = self.read(x, y)
        return self.tokenizer.encode(columns.texts, columns.pairs), columns.targets

    def encode_targets(self, y, count: int):
        """Raw targets -> an array, or None where the task makes its own."""
        raise NotImplementedError

    def make_batches(
        self, encoded: Encoded, targets, sample_weight, batch_size: int | None, shuffle: bool, **options
    ) -> BucketedDataset:
        """A dataset over rows of tokens; `options` are further ones of `BucketedDataset`."""
        batch_size = BATCH_SIZE if batch_size is None else batch_size
        if targets is None and not shuffle and options.get("transform") is None and takes_any_shape():
            options |= {"num_buckets": None, "max_tokens": UNCOMPILED_TOKENS}
        options.setdefault("num_buckets", shapes_for(len(encoded), batch_size, shuffle))
        options.setdefault("by_length", not (shuffle and self.draws_all_lengths))
        return BucketedDataset(
            encoded,
            targets,
            sample_weight,
            batch_size=batch_size,
            pad_id=self.pad_id,
            shuffle=shuffle,
            seed=self.seed,
            **options,
        )

    @property
    def pad_id(self) -> int:
        """The id that fills rows up."""
        return self.tokenizer.pad_id if self.tokenizer else self.backbone.config.pad_token_id

    def batches(
        self,
        x,
        y=None,
        sample_weight=None,
        *,
        batch_size: int | None = None,
        shuffle: bool = True,
        steps: int | None = None,
    ) -> keras.utils.PyDataset:
        """The dataset that `fit` makes of what it is given, for loops of your own.

        Args:
            x: Texts in any form that `fit` takes, a stream of batches, or, without a tokenizer, a dict of arrays.
            y: Targets, where x does not hold them.
            sample_weight: float (n,).
            batch_size: Rows in a batch; 32 where None.
            shuffle: A seeded order, another each epoch; else the rows are sorted by length.
            steps: Batches of a stream an epoch.
        """
        batch_size = BATCH_SIZE if batch_size is None else batch_size
        check_batch_size(batch_size)
        if is_stream(x):
            if isinstance(x, (BucketedDataset, StreamDataset)):
                return x
            if y is not None or sample_weight is not None:
                raise ValueError("a stream has targets and weights in its batches: pass no y and no sample_weight.")
            return StreamDataset(x, self._convert_batch, steps)
        if self.tokenizer is None:
            encoded, targets = encoded_from_arrays(x, self.backbone.config.vocab_size), y
        else:
            encoded, targets = self.encode_rows(x, y)
        if len(encoded) == 0:
            raise ValueError("there is nothing to do: x has no rows.")
        sample_weight = row_weights(sample_weight, len(encoded))
        if targets is not None or shuffle:
            targets = self.encode_targets(targets, len(encoded))
        return self.make_batches(encoded, targets, sample_weight, batch_size, shuffle)

    def _convert_batch(self, batch: tuple, width) -> tuple:
        x, *rest = batch
        ready = isinstance(x, dict) and "token_ids" in x
        if not ready:
            if self.tokenizer is None:
                raise ValueError("the batches hold texts and the task has no tokenizer.")
            encoded, targets = self.encode_rows(x, rest[0] if rest else None)
            if targets is not None:
                rest = [targets, *rest[1:]]
            longest = width(int(encoded.lengths.max(initial=0)), self.tokenizer.max_length)
            x = encoded.pad(np.arange(len(encoded)), longest, self.pad_id)
        if rest:
            rest[0] = self.encode_targets(rest[0], len(x["token_ids"]))
        return (x, *rest)

    # ---- training

    def fit(
        self,
        x=None,
        y=None,
        batch_size: int | None = None,
        epochs: int = 1,
        verbose="auto",
        callbacks=None,
        validation_split: float = 0.0,
        validation_data=None,
        shuffle: bool = True,
        class_weight=None,
        sample_weight=None,
        initial_epoch: int = 0,
        steps_per_epoch: int | None = None,
        validation_steps: int | None = None,
        validation_batch_size: int | None = None,
        validation_freq=1,
    ):
        """As `keras.Model.fit`, on raw text.

        `x` may be a list, array or Series of strings; pairs as a tuple of two columns or a list of tuples; a pandas
        frame, `datasets.Dataset` or dict of columns with the targets in it; a PyDataset, tf.data.Dataset, torch
        DataLoader or grain loader of batches, which keep their own order. `validation_data` is a tuple (x, y) or (x, y,
        sample weights), or x alone where it holds the targets. `validation_split` is the share of the rows that is
        kept for validation, drawn by the seed; of classes of rows each has its share.

        A `LearningRateScheduler` needs an optimizer without a schedule of its own.
        """
        if not self.compiled:
            raise ValueError("call compile() before fit(); without arguments it takes the paper's recipe.")
        names = column_names(x)
        if names is not None and verbose and self.tokenizer is not None:
            roles = self.columns_taken(x, names)
            if y is not None:  # in place of the table's
                roles.popitem()
            print(f"fit: {describe_columns(roles, names)}")
        if validation_split and validation_data is None:
            (x, y, sample_weight), validation_data = self._split(x, y, sample_weight, validation_split)
        train = self.batches(x, y, sample_weight, batch_size=batch_size, shuffle=shuffle, steps=steps_per_epoch)
        steps = min(len(train), steps_per_epoch or len(train))
        if validation_data is not None:
            validation_data = self._validation(validation_data, validation_batch_size or batch_size, validation_steps)
        # With float16, Keras wraps the optimizer in one that scales the loss.
        optimizer = getattr(self.optimizer, "inner_optimizer", self.optimizer)
        check_rate_callbacks(optimizer, callbacks)
        if not self.optimizer.built:  # TensorFlow traces the step twice where its first trace makes the moments
            self.optimizer.build(self.trainable_variables)
        weights = self._class_ids(class_weight)
        classes = None if weights is None else np.array([weights.get(i, 1) for i in range(len(self.labels))], "float32")
        data, updates = for_training(train, optimizer, classes, steps, initial_epoch, epochs)
        if isinstance(optimizer, AdamW):
            optimizer.set_total_steps(max(1, updates))
        callbacks = with_callback(callbacks, NaNGuard())
        if isinstance(train, (BucketedDataset, StreamDataset)):
            callbacks = with_callback(callbacks, train.begin_at(initial_epoch))
        return super().fit(
            self.to_device(data),
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

    def evaluate(
        self,
        x=None,
        y=None,
        batch_size: int | None = None,
        verbose="auto",
        sample_weight=None,
        steps=None,
        callbacks=None,
        return_dict: bool = False,
        **kwargs,
    ):
        """As `keras.Model.evaluate`, on raw text in any form that `fit` takes. The loss is Σ weight · loss / Σ weight
        over all examples, the same for every `batch_size`, except where a loss compares the rows of a batch."""
        if not kwargs.pop("_use_cached_eval_dataset", False):
            x = self.measured_batches(x, y, sample_weight, batch_size=batch_size, steps=steps)
        return super().evaluate(x, verbose=verbose, steps=steps, callbacks=callbacks, return_dict=return_dict, **kwargs)

    def predict(self, x, batch_size: int | None = None, verbose="auto", steps=None, callbacks=None):
        """Logits, in the order of x; as `keras.Model.predict`, on raw text in any form that `fit` takes. `steps` counts
        batches of a stream."""
        check_steps(x, steps)
        data = self.batches(self._without_targets(x), batch_size=batch_size, shuffle=False, steps=steps)
        outputs = super().predict(data, verbose=verbose, steps=steps, callbacks=callbacks)
        return data.unsort(outputs) if isinstance(data, BucketedDataset) else outputs

    def _without_targets(self, x):
        """x without a table's labels, which may be hidden or other ones."""
        if self.tokenizer is None or is_stream(x):
            return x
        columns = self.read(x)
        return columns._replace(**{columns._fields[-1]: None})

    def measured_batches(
        self, x, y=None, sample_weight=None, *, batch_size: int | None = None, steps: int | None = None
    ):
        """As `batches`, for `evaluate` and validation, which need targets."""
        data = self.batches(x, y, sample_weight, batch_size=batch_size, shuffle=False, steps=steps)
        if isinstance(data, BucketedDataset) and not data.has_labels:
            raise ValueError("there are no targets: pass y, or a table with a column called label.")
        return data

    def _validation(self, data, batch_size: int | None, steps):
        if isinstance(data, tuple) and 2 <= len(data) <= 3:  # a list has rows
            return self.measured_batches(*data, batch_size=batch_size)
        return self.measured_batches(data, batch_size=batch_size, steps=steps)

    def _split(self, x, y, sample_weight, share: float):
        """What `fit` takes in two parts, (x, y, sample weights) each."""
        if is_stream(x):
            raise ValueError("validation_split needs rows, and x is a stream of batches: pass validation_data instead.")
        if self.tokenizer is not None:
            columns = self.read(x, y)
            classes = self.classes_of(columns[-1], len(columns[0]))
            return split_columns(columns, sample_weight, share, self.seed, classes)
        x = x if isinstance(x, dict) else {"token_ids": x}
        classes = self.classes_of(y, len(next(iter(x.values()))))
        return split_arrays(x, y, sample_weight, share, self.seed, classes)

    def classes_of(self, y, count: int) -> np.ndarray | None:
        """The class of each row, int (count,), from raw targets; None where rows have none."""
        return None

    def _class_ids(self, class_weight):
        if class_weight is not None:
            raise ValueError(f"class_weight is for classes of whole texts, which {type(self).__name__} does not tell.")
        return None

    # ---- serialisation in Keras's own formats

    def get_config(self) -> dict[str, Any]:
        return {
            "backbone": keras.saving.serialize_keras_object(self.backbone),
            "tokenizer": self.tokenizer.get_config() if self.tokenizer else None,
            "name": self.name,
            "dtype": keras.saving.serialize_keras_object(self.dtype_policy),
            **adapter_config(self),
        }

    @classmethod
    def from_config(cls, config, custom_objects=None):
        config = dict(config)
        adapters = config.pop("adapters", None)
        config["backbone"] = keras.saving.deserialize_keras_object(config["backbone"])
        if config["tokenizer"] is not None:
            config["tokenizer"] = Tokenizer.from_config(config["tokenizer"])
        task = cls(**config)
        apply_adapters(task, adapters)
        return task
