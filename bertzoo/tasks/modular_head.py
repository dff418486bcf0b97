"""Tasks whose head may be modules of sentence-transformers: a pooling and dense layers, in files of their own."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

from bertzoo._keras_hooks import print_message
from bertzoo.checkpoints.loading import save_model
from bertzoo.checkpoints.sentence_transformers import (
    MODULES_FILE,
    VECTOR,
    build_sentence_transformer_files,
    is_modular_classifier,
    read_sentence_transformer_files,
)
from bertzoo.layers.heads import PooledHead
from bertzoo.tasks.sentence_modules import layers_from_modules, load_layer_weights, module_from_layer
from bertzoo.tasks.task import Task


class ModularHeadTask(Task):
    """A task that reads and writes a `PooledHead` as modules of sentence-transformers beside the encoder's files.

    No class of transformers holds an encoder with such a head; `transformers.AutoModel` reads the encoder.
    """

    # Whether the head of a preset is among its modules of sentence-transformers, and what the last of them gives.
    _is_modular: Callable[[str | Path], bool] = staticmethod(is_modular_classifier)
    _module_output: ClassVar[str] = VECTOR

    @classmethod
    def from_preset(cls, preset: str | Path, **options: Any) -> Any:
        """As `Task.from_preset`.

        Args:
            preset, options: Same as in `Task.from_preset`.
        """
        if options.get("head") is not None or options.get("new_head") or not cls._is_modular(preset):
            return super().from_preset(preset, **options)
        return cls._from_modules(preset, **options)

    @classmethod
    def _from_modules(cls, preset: str | Path, verbose: bool = True, **options: Any) -> Any:
        """Loads a directory whose modules.json lists an encoder, a pooling and dense layers."""
        files = read_sentence_transformer_files(preset, cls._module_output)
        pooling, *layers = layers_from_modules(files.modules)
        limits = (options.get("max_length"), files.max_length)
        options["max_length"] = min((length for length in limits if length is not None), default=None)
        options["head"] = PooledHead(pooling, layers)
        if not is_modular_classifier(preset):  # whose config.json is the encoder's alone
            options.setdefault("labels", layers[-1].units)
        model = super().from_preset(files.directory, verbose=False, **options)
        load_layer_weights(files.modules, [pooling, *layers])
        # The weights of modules are loaded by now, and a pooler is not read.
        read = ("custom_head", "pooler")
        model.load_report.new = [name for name in model.load_report.new if not name.startswith(read)]
        model.load_report.source = str(preset)
        if verbose:
            print_message(str(model.load_report))
        return model

    def save_to_preset(self, directory: str | Path) -> None:
        """Writes a Hugging Face checkpoint directory, head and tokenizer included, that transformers loads.

        With a `PooledHead` it is one of an encoder, and modules of sentence-transformers beside it, the last of which
        gives the logits.
        """
        if not isinstance(self.custom_head, PooledHead):
            super().save_to_preset(directory)
            return
        modules = [module_from_layer(layer) for layer in (self.custom_head.pooling, *self.custom_head.after_pooling)]
        if self._module_output != VECTOR:
            settings = {**modules[-1].settings, "module_output_name": self._module_output}
            modules[-1] = dataclasses.replace(modules[-1], settings=settings)
        length = self.tokenizer.max_length if self.tokenizer else self.backbone.config.max_length
        files = build_sentence_transformer_files(modules, length, self._module_settings())
        changes = self._config_changes()
        save_model(self.backbone, directory, tokenizer=self.tokenizer, extra_files=files, config_changes=changes)

    def _module_settings(self) -> dict[str, Any]:
        """The keys of config_sentence_transformers.json of a model whose head is among its modules."""
        return {}

    def _own_values(self) -> dict[str, Any]:
        own = super()._own_values()
        return {**own, "head": MODULES_FILE} if isinstance(self.custom_head, PooledHead) else own
