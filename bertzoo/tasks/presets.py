"""Tasks from presets and back: what is read of a checkpoint directory, and what is written into one.

A head of the caller's own is described in config.json, and made again without running foreign code.
"""

import tempfile
import warnings
from pathlib import Path
from typing import Any, ClassVar

import keras
import numpy as np

from bertzoo._keras_hooks import print_message
from bertzoo.checkpoints.errors import CheckpointError
from bertzoo.checkpoints.files import upload_preset
from bertzoo.checkpoints.loading import check_constructor_options, load_model, save_model
from bertzoo.data.labels import labels_from_config, labels_to_config, make_label_names, report_replaced_labels
from bertzoo.export.exporting import export_model
from bertzoo.models.config import EncoderConfig
from bertzoo.models.encoder import Encoder
from bertzoo.models.registry import FAMILIES, config_and_family_from_hf
from bertzoo.text.tokenizer import Tokenizer


class PresetTask(keras.Model):
    """A task's presets: loading, saving, exporting and uploading."""

    heads: tuple[str, ...] = ()
    # What follows the family's name in the name of Hugging Face's class; the first head's where None.
    hf_class: str | None = None
    # Constructor arguments that are attributes too, which `get_config` keeps.
    config_keys: ClassVar[tuple[str, ...]] = ()
    # Constructor arguments for which Hugging Face has no key, with their defaults; config.json has a block for them.
    own_options: ClassVar[dict[str, Any]] = {}

    @classmethod
    def from_preset(
        cls,
        preset: str | Path,
        *,
        max_length: int | None = None,
        lowercase: bool | None = None,
        dtype: Any = None,
        dropout: float | None = None,
        attention_dropout: float = 0.0,
        remat: bool = False,
        new_head: bool = False,
        verbose: bool = True,
        **task_options,
    ) -> Any:
        """Loads a task from a bundled name, a directory or `hf://owner/name[@revision]`, with its head if the files
        have it.

        Args:
            preset: What to load.
            max_length: Longest input in tokens; all positions of the model where None.
            lowercase: Overrides what the tokenizer's files say.
            dtype: Keras dtype policy, such as "mixed_bfloat16"; the global one where None.
            dropout, attention_dropout, remat: See `Encoder`.
            new_head: Start with a new head even where the files have one.
            verbose: Print the load report.
            task_options: Arguments of the task's constructor. `tokenizer=None` leaves the tokenizer's files alone.

        Raises:
            CheckpointError: The files can't be used.
            TypeError: An option is unknown.
        """
        check_constructor_options(cls, task_options)
        policy = {"dtype": dtype} if dtype else {}
        in_file: list[str] = []

        def make(config: EncoderConfig, directory: Path):
            encoder = Encoder(config, cls.needs_pooler(config), dropout, attention_dropout, remat, **policy)
            options = cls._options_from_files(config)
            if new_head:
                options = {key: value for key, value in options.items() if key not in ("head", "problem_type")}
            in_file.extend(make_label_names(options["labels"]) if "labels" in options else ())
            options.update(task_options)
            requested = task_options.get("labels")
            if isinstance(requested, (int, np.integer)) and requested == len(in_file) and not new_head:
                options["labels"] = list(in_file)  # a number of classes leaves them their names
            if isinstance(options.get("head"), dict):
                options["head"] = _restore_head(options["head"])
            if "tokenizer" not in options:
                options["tokenizer"] = load_tokenizer(directory, config, max_length, lowercase)
            return cls(encoder, **policy, **options)

        heads = () if task_options.get("head") is not None else cls.heads
        task = load_model(
            preset, config_and_family_from_hf, make, head_names=heads, reinitialize_heads=new_head, verbose=False
        )
        if in_file and not set(task.load_report.new) - {"pooler"}:  # the head is the file's, and so its order of labels
            replaced = report_replaced_labels(task.labels, in_file)
            task.load_report.notes += [replaced] if replaced else []
        if verbose:
            print_message(str(task.load_report))
        return task

    @classmethod
    def needs_pooler(cls, config: EncoderConfig) -> bool:
        """Whether a head of the task reads the pooler of this family."""
        return any(head in FAMILIES[config.model_type].pooled_heads for head in cls.heads)

    @classmethod
    def _options_from_files(cls, config: EncoderConfig) -> dict[str, Any]:
        """Constructor options that the files of a fine-tuned model hold."""
        labels = labels_from_config(config) if "labels" in cls.config_keys else {}
        own = _own_block(config)
        return {**labels, **{key: own[key] for key in cls.own_options if own.get(key) is not None}}

    def _own_values(self) -> dict[str, Any]:
        """The values of `own_options`."""
        return {key: keras.saving.serialize_keras_object(getattr(self, key)) for key in self.own_options}

    def _config_changes(self) -> dict[str, Any]:
        """Keys of config.json that the task owns."""
        block = _own_block(self.backbone.config) | self._own_values()
        block = {key: value for key, value in block.items() if value not in (None, self.own_options.get(key))}
        return {"bertzoo": block or None, **(labels_to_config(self.labels) if "labels" in self.config_keys else {})}

    def _extra_files(self) -> dict[str, Any]:
        """Further files of a preset of the task, as `write_preset` takes them."""
        return {}

    def save_to_preset(self, directory: str | Path) -> None:
        """Writes a Hugging Face checkpoint directory, head and tokenizer included, that transformers loads."""
        save_model(
            self,
            directory,
            head_names=self.heads,
            hf_class_suffix=self.hf_class or self.backbone.family.heads[self.heads[0]].hf_class,
            config_changes=self._config_changes(),
            tokenizer=self.tokenizer,
            extra_files=self._extra_files(),
        )

    def export(self, filepath: Any, format: str = "tf_saved_model", verbose: Any = False, **options) -> None:
        """Writes a SavedModel, or with `format="onnx"` an ONNX file; see `bertzoo.export.export_model`."""
        export_model(self, filepath, format, verbose, **options)

    def onnx_outputs(self, nodes: Any) -> dict[str, Any]:
        """The outputs of an export: name -> tensor and shape, made by `nodes.rows` or `nodes.padded`.

        Args:
            nodes: The encoder's forward pass in the graph, a `bertzoo.export.encoder_nodes.EncoderNodes`.

        Raises:
            ValueError: The task does not say what its outputs are.
        """
        raise ValueError(f"Expected a task that has onnx_outputs. Received: a {type(self).__name__}; write the method.")

    def exported_settings(self) -> dict[str, Any]:
        """What an export holds besides the graph, as JSON values: the task's options, and the encoder's limits."""
        plain = {key: getattr(self, key) for key in (*self.config_keys, *self.own_options)}
        plain = {key: value for key, value in plain.items() if not _has_layers(value)}
        limits = self.backbone.exported_settings()
        if self.tokenizer is not None:
            limits["max_length"] = min(self.tokenizer.max_length or limits["max_length"], limits["max_length"])
        return {**limits, "task": type(self).__name__, **plain}

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
        card = _model_card(self, repo_id)
        with tempfile.TemporaryDirectory() as folder:
            self.save_to_preset(Path(folder) / "preset")
            options: dict[str, Any] = {"private": private, "token": token, "commit_message": commit_message}
            upload_preset(Path(folder) / "preset", repo_id, **options, model_card=card)


def _has_layers(value: Any) -> bool:
    return any(isinstance(leaf, keras.layers.Layer) for leaf in keras.tree.flatten(value))


def _own_block(config: EncoderConfig) -> dict[str, Any]:
    """The block `bertzoo` of config.json, for what Hugging Face has no key."""
    return config.extra.get("bertzoo") or {}


def load_tokenizer(directory: Path, config: EncoderConfig, max_length: int | None, lowercase: bool | None) -> Tokenizer:
    """Loads the tokenizer of a checkpoint directory with the limits of its model.

    Raises:
        ValueError: `max_length` exceeds the model's positions, or the vocabulary exceeds its token embeddings.
    """
    tokenizer = Tokenizer.from_directory(directory, lowercase=lowercase)
    if max_length is not None and max_length > config.max_length:
        raise ValueError(
            f"max_length must be at most {config.max_length}, the model's positions. Received: {max_length}."
        )
    if tokenizer.vocabulary_size > config.vocab_size:
        raise ValueError(
            f"the tokenizer has {tokenizer.vocabulary_size} tokens and the model embeddings for {config.vocab_size}: "
            "they do not belong together."
        )
    if tokenizer.vocabulary_size < 0.9 * config.vocab_size:
        warnings.warn(
            f"{directory}: the tokenizer has {tokenizer.vocabulary_size} tokens and the model embeddings for "
            f"{config.vocab_size}. If a file of the tokenizer is incomplete, texts are split wrongly.",
            stacklevel=2,
        )
    tokenizer.max_length = max_length or min(tokenizer.max_length or config.max_length, config.max_length)
    tokenizer.segments = config.type_vocab_size > 1
    return tokenizer


# Class -> what the hub calls such a task.
PIPELINES = {
    "CrossEncoder": "text-ranking",
    "EntityFinder": "token-classification",
    "MaskedLM": "fill-mask",
    "MultiVectorEncoder": "feature-extraction",
    "MultipleChoice": "multiple-choice",
    "QuestionAnswerer": "question-answering",
    "SentenceEncoder": "sentence-similarity",
    "SparseEncoder": "feature-extraction",
    "TextClassifier": "text-classification",
    "TokenClassifier": "token-classification",
}


def _model_card(task: keras.Model, repo_id: str) -> str:
    """README.md for a task's preset: how to load it, what it is, and what its author should add."""
    name, config, labels = type(task).__name__, task.backbone.config, getattr(task, "labels", None)
    pipeline = f"pipeline_tag: {PIPELINES[name]}\n" if name in PIPELINES else ""
    facts = (
        f"- {task.backbone.family.hf_name} of {config.num_hidden_layers} layers × {config.hidden_size}, "
        f"{task.count_params():,} parameters, at most {config.max_length} tokens"
    )
    if labels:
        facts += f"\n- labels: {', '.join(labels[:20])}" + (f" and {len(labels) - 20} more" if labels[20:] else "")
    return f"""---
library_name: bertzoo
tags:
- keras
- {config.model_type}
{pipeline}---
# {repo_id.split("/")[-1]}

```python
import bertzoo as bz

model = bz.{name}.from_preset("hf://{repo_id}")
```

{facts}

Training data, results and limits: to be added by the author.
"""


# ---- heads of the caller's own

# Layers that compute from their settings and weights alone. Lambda, those that wrap other libraries' modules, and those
# that read files are not among them.
_LAYERS = tuple(
    f"keras.src.layers.{name}"
    for name in (
        "activations",
        "attention",
        "convolutional",
        "core.dense",
        "core.einsum_dense",
        "core.identity",
        "core.input_layer",
        "core.masking",
        "core.wrapper",
        "merging",
        "normalization",
        "pooling",
        "regularization",
        "reshaping",
        "rnn",
    )
)
_PLAIN_OBJECTS = ("keras.initializers", "keras.regularizers", "keras.constraints")
_MODELS = {
    ("keras", "Sequential"),
    ("keras.src.models.functional", "Functional"),
    ("keras", "DTypePolicy"),
    ("keras.dtype_policies", "DTypePolicy"),
}


def _restore_head(content: dict[str, Any]) -> keras.layers.Layer:
    """The head that `serialize_keras_object` described, with new weights.

    Raises:
        CheckpointError: It is made of anything but Keras's own computing layers and bertzoo's, or can't be made.
    """
    _check_objects(content)
    try:
        head = keras.saving.deserialize_keras_object(content, safe_mode=True)
    except (TypeError, KeyError, AttributeError) as error:
        raise CheckpointError(f"the head that config.json describes can't be made: {error}") from error
    if not isinstance(head, keras.layers.Layer):
        raise CheckpointError(f"config.json describes a {type(head).__name__} as head; a layer is expected.")
    return head


def _check_objects(content) -> None:
    if isinstance(content, dict):
        if "class_name" in content and not _is_allowed(content):
            raise CheckpointError(
                f"config.json describes a head with {content.get('module')}.{content['class_name']}, which is not made "
                "from a file because it could run code of its own: pass head=, a layer that you made yourself, and it "
                "gets the weights."
            )
        content = list(content.values())
    for value in content if isinstance(content, (list, tuple)) else ():
        _check_objects(value)


def _is_allowed(content: dict[str, Any]) -> bool:
    module, name, registered = content.get("module"), content["class_name"], content.get("registered_name")
    if name == "__keras_tensor__":
        return True
    if not isinstance(module, str) or not isinstance(name, str):
        return False
    if registered == f"bertzoo>{name}":
        return module.startswith("bertzoo.") and keras.saving.get_registered_object(registered) is not None
    if registered not in (None, name):
        return False
    if (module, name) in _MODELS or module in _PLAIN_OBJECTS:
        return True
    layer = getattr(keras.layers, name, None) if module == "keras.layers" else None
    return isinstance(layer, type) and layer.__module__.startswith(_LAYERS)
