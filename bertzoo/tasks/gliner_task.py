"""Tasks in the files of GLiNER."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from bertzoo._keras_hooks import print_message
from bertzoo.checkpoints import gliner
from bertzoo.checkpoints.errors import CheckpointError, add_source_to_errors
from bertzoo.checkpoints.files import find_preset_directory
from bertzoo.checkpoints.json_files import encode_json
from bertzoo.checkpoints.loading import file_tensors, load_model, take_encoder_options, weights_by_name
from bertzoo.checkpoints.names import WeightMapping
from bertzoo.checkpoints.saving import write_preset
from bertzoo.checkpoints.tensors import build_weight_files
from bertzoo.models.config import EncoderConfig
from bertzoo.models.encoder import Encoder
from bertzoo.models.registry import FAMILIES, config_and_family_from_hf
from bertzoo.tasks.added_tokens import add_tokens
from bertzoo.tasks.presets import load_tokenizer
from bertzoo.tasks.task import Task
from bertzoo.text.tokenizer import Tokenizer

ENT_TOKEN, SEP_TOKEN = "<<ENT>>", "<<SEP>>"
UNUSED_TOKEN = "[FLERT]"  # which GLiNER adds to a tokenizer before its own tokens
# Constructor arguments whose names are those of gliner_config.json.
KEYS = (
    *("span_mode", "hidden_size", "max_width", "num_rnn_layers", "dropout", "max_types", "max_len"),
    *("max_neg_type_ratio", "embed_ent_token", "subtoken_pooling", "ent_token", "sep_token"),
)


class GlinerTask(Task):
    """A task that reads and writes GLiNER's directories. The arguments of its constructor are `KEYS`, and `settings`
    for the other keys of gliner_config.json."""

    span_mode: str
    num_rnn_layers: int
    ent_token: str
    settings: dict[str, Any]

    @property
    def head_mappings(self) -> list[WeightMapping]:
        """The tensors of the weights after the encoder in GLiNER's files."""
        return gliner.head_mappings(set(weights_by_name(self)), self.span_mode, self.num_rnn_layers)

    @classmethod
    def from_preset(
        cls,
        preset: str | Path,
        *,
        max_length: int | None = None,
        lowercase: bool | None = None,
        verbose: bool = True,
        **options: Any,
    ) -> "GlinerTask":
        """Loads a model of GLiNER, or makes a new one of an encoder, whose vocabulary gets the tokens of prompts.

        Args:
            preset: A bundled name, a directory, or `hf://owner/name[@revision]`.
            max_length: Longest row in tokens; all positions of the model where None.
            lowercase, verbose: See `Task.from_preset`.
            options: `dtype`, `attention_dropout` and `remat`, see `Task.from_preset`; and what the constructor takes,
                in place of what the files say.

        Raises:
            CheckpointError: The files can't be used.
            TypeError: An option is unknown.
        """
        for_encoder = take_encoder_options(cls, options, ("attention_dropout", "remat"))
        directory, limits = find_preset_directory(preset), (max_length, lowercase)
        if gliner.is_checkpoint(directory):
            task = cls._from_gliner(directory, limits, for_encoder, options)
        else:
            task = cls._from_encoder(directory, limits, for_encoder, options)
        task.load_report.source = str(preset)
        if verbose:
            print_message(str(task.load_report))
        return task

    @classmethod
    def _from_gliner(cls, directory: Path, limits: tuple, for_encoder: dict, options: dict) -> "GlinerTask":
        content = gliner.read_config(directory)
        in_file = {key: content[key] for key in KEYS if key in content}
        settings = {key: value for key, value in content.items() if key not in (*KEYS, "encoder_config")}

        def make(config: EncoderConfig, directory: Path) -> "GlinerTask":
            chosen = {**in_file, "settings": settings, **options}
            if "tokenizer" not in chosen:
                names = [chosen.get("ent_token", ENT_TOKEN), chosen.get("sep_token", SEP_TOKEN)]
                chosen["tokenizer"] = _prompt_tokenizer(directory, content, config, limits, names)
            encoder = Encoder(config, pooler=FAMILIES[config.model_type].has_pooler_alone, **for_encoder)
            with add_source_to_errors(directory):
                return cls(encoder, **chosen)

        return load_model(directory, config_and_family_from_hf, make, verbose=False)

    @classmethod
    def _from_encoder(cls, directory: Path, limits: tuple, for_encoder: dict, options: dict) -> "GlinerTask":
        encoder = Encoder.from_preset(directory, verbose=False, **for_encoder)
        report, options = encoder.load_report, dict(options)
        if "tokenizer" in options:
            tokenizer = options.pop("tokenizer")
        else:
            tokenizer = load_tokenizer(directory, encoder.config, *limits)
        if tokenizer is not None:
            tokens = [options.get("ent_token", ENT_TOKEN), options.get("sep_token", SEP_TOKEN)]
            encoder, tokenizer = add_tokens(encoder, tokenizer, tokens)
        task = cls(encoder, tokenizer, **options)
        task.load_report = report
        report.new = [*report.new, "entities", "the tokens of prompts"]
        return task

    def save_to_preset(self, directory: str | Path) -> None:
        """Writes a directory that gliner loads, with equal outputs, and the tokenizer.

        Raises:
            CheckpointError: A layer is quantized, or the directory can't be written.
        """
        of_head = {name for entry in self.head_mappings for name in entry.hf_names}
        tensors = file_tensors(self, self.backbone, ())
        if any(tensor.dtype == np.int8 for tensor in tensors.values()):
            raise CheckpointError("GLiNER's files hold no int8 weights: save the model as a .keras file.")
        config, family = self.backbone.config, self.backbone.family
        encoder_config = {**config.to_hf(), "architectures": [f"{family.hf_name}Model"]}
        content = {
            "model_name": "",
            **self.settings,
            **{key: getattr(self, key) for key in KEYS},
            "encoder_config": encoder_config,
            "vocab_size": config.vocab_size,
        }
        files: dict[str, Any] = dict(build_weight_files(gliner.file_names(tensors, of_head)))
        if self.tokenizer is not None:
            content["class_token_index"] = self.tokenizer.token_to_id(self.ent_token)
            files.update(self.tokenizer.file_contents())
        files[gliner.CONFIG_FILE] = encode_json(content)
        write_preset(Path(directory), files)


def _prompt_tokenizer(
    directory: Path, content: Mapping[str, Any], config: EncoderConfig, limits: tuple, tokens: list[str]
) -> Tokenizer:
    """The tokenizer of a model of GLiNER, with the tokens of prompts, which older files leave to the loader to add."""
    own = (directory / "tokenizer_config.json").is_file()
    source = directory if own else gliner.base_directory(directory, content)
    tokenizer = load_tokenizer(source, config, *limits)
    if any(tokenizer.token_to_id(token) is None for token in tokens):
        tokenizer = tokenizer.with_special_tokens([UNUSED_TOKEN, *tokens])
    return tokenizer
