"""The configuration of an encoder, to and from Hugging Face's `config.json`."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar

from bertzoo.checkpoints.json_files import (
    FLAG,
    NULL,
    OBJECT,
    TEXT,
    Rule,
    check,
    choice,
    integer,
    list_of,
    number,
    object_of,
)

ACTIVATIONS = ("gelu", "gelu_new", "gelu_pytorch_tanh", "gelu_fast", "gelu_python", "relu", "silu", "swish", "tanh")

# Keys of Hugging Face's files that do not change what an encoder computes, or that other parts of bertzoo read.
INERT_KEYS = frozenset(
    """
    _attn_implementation _name_or_path add_cross_attention architectures attention_head_size
    attn_implementation auto_map bad_words_ids begin_suppress_tokens bertzoo bos_token_id
    chunk_size_feed_forward classifier_activation cls_token_id conv_groups cross_attention_hidden_size
    decoder_bias decoder_start_token_id deterministic_flash_attn directionality diversity_penalty do_sample
    down_scale_factor dtype early_stopping encoder_no_repeat_ngram_size eos_token_id
    exponential_decay_length_penalty finetuning_task forced_bos_token_id forced_eos_token_id gap_size
    global_attn_every_n_layers global_rope_theta gradient_checkpointing id2label initializer_cutoff_factor
    is_decoder is_encoder_decoder label2id language layers_to_keep length_penalty local_rope_theta
    max_length min_length net_structure_type no_repeat_ngram_size num_beam_groups num_beams num_labels
    num_memory_blocks num_return_sequences output_attentions output_hidden_states output_past output_scores
    pooler_fc_size pooler_hidden_size pooler_num_attention_heads pooler_num_fc_layers pooler_size_per_head
    pooler_type prefix problem_type pruned_heads reference_compile remove_invalid_values
    repad_logits_with_grad repetition_penalty return_dict return_dict_in_generate rope_parameters
    sbert_ce_default_activation_function sentence_transformers sep_token_id sinusoidal_pos_embds
    sparse_pred_ignore_index sparse_prediction summary_activation
    summary_first_dropout summary_last_dropout summary_type summary_use_proj suppress_tokens talking_head
    task_specific_params temperature tf_legacy_loss tie_encoder_decoder tie_weights_ tie_word_embeddings
    tokenizer_class top_k top_p torch_dtype torchscript transformers_version typical_p use_bfloat16
    use_cache
    """.split()  # noqa: SIM905
)

# Keys that we know, with the only values that we compute: any other value would load and give wrong numbers.
ONLY_VALUES = {
    "position_embedding_type": (None, "absolute"),
    "is_decoder": (None, False),
    "add_cross_attention": (None, False),
    "pruned_heads": (None, {}),
}

ACTIVATION = choice(*ACTIVATIONS)
DROPOUT = number(0, 1)
# What is not the encoder's, and read by tasks, families and commands.
FILE_RULES = {
    "architectures": list_of(TEXT) | NULL,
    "bertzoo": OBJECT | NULL,
    "decoder_bias": FLAG,
    "global_attn_every_n_layers": integer(1),
    "global_rope_theta": number(0),
    "id2label": object_of(TEXT | number() | FLAG | NULL) | NULL,
    "local_rope_theta": number(0),
    "num_labels": integer(1) | NULL,
    "problem_type": choice("single_label_classification", "multi_label_classification", "regression") | NULL,
    "rope_parameters": object_of(OBJECT | TEXT | number() | NULL) | NULL,
    "sbert_ce_default_activation_function": TEXT | NULL,
    "sentence_transformers": OBJECT | NULL,
    "summary_type": TEXT,
    "summary_use_proj": FLAG,
    "tie_word_embeddings": FLAG | NULL,
}
# In config.json's own block.
OWN_RULES = {
    "crf": FLAG,
    "enhanced_mask_decoder": FLAG,
    "head": OBJECT | NULL,
    "label_all_tokens": FLAG,
    "learning_rate": number(0) | NULL,
    "max_query_length": integer(1),
    "no_answer_threshold": number() | NULL,
    "stride": integer(0) | NULL,
    "temperature": number(0) | NULL,
    "thresholds": list_of(number()) | NULL,
}


@dataclass(frozen=True)
class EncoderConfig:
    """What defines an encoder. Names are those of Hugging Face's BERT; the defaults are BERT-base's (Devlin et al.
    2019).

    A family whose file uses other names, or that has settings of its own, subclasses this (see
    `bertzoo.models.registry`).
    `extra` holds the keys of a file that change nothing here; they are written back unchanged.

    Raises:
        ValueError: A value is out of range or not supported.
    """

    model_type: str = "bert"
    vocab_size: int = 30522
    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    intermediate_size: int = 3072
    hidden_act: str = "gelu"
    hidden_dropout_prob: float = 0.1
    attention_probs_dropout_prob: float = 0.1
    max_position_embeddings: int = 512
    type_vocab_size: int = 2
    initializer_range: float = 0.02
    layer_norm_eps: float = 1e-12
    pad_token_id: int = 0
    classifier_dropout: float | None = None
    extra: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)

    # Our name -> the file's, where they differ; None if the family fixes the value and files do not hold it.
    hf_names: ClassVar[Mapping[str, str | None]] = MappingProxyType({})
    # What the values must be, by our names; a family that has further ones adds theirs.
    rules: ClassVar[Mapping[str, Rule]] = MappingProxyType(
        {
            **dict.fromkeys(
                (
                    "vocab_size",
                    "hidden_size",
                    "num_hidden_layers",
                    "num_attention_heads",
                    "intermediate_size",
                    "max_position_embeddings",
                    "type_vocab_size",
                ),
                integer(1),
            ),
            "hidden_act": ACTIVATION,
            "hidden_dropout_prob": DROPOUT,
            "attention_probs_dropout_prob": DROPOUT,
            "classifier_dropout": DROPOUT | NULL,
            "initializer_range": number(0),
            "layer_norm_eps": number(0, 1),
            "pad_token_id": integer(0) | NULL,
        }
    )
    # What a file must say: a default would be wrong for some models, and nothing would notice.
    required: ClassVar[tuple[str, ...]] = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads")

    def __post_init__(self):
        check({f.name: getattr(self, f.name) for f in fields(self)}, self.rules)
        if self.hidden_size % self.num_attention_heads:
            raise ValueError(
                f"hidden_size must be a multiple of num_attention_heads. Received: {self.hidden_size} and "
                f"{self.num_attention_heads}."
            )

    @property
    def head_size(self) -> int:
        """Width of one attention head."""
        return self.hidden_size // self.num_attention_heads

    @property
    def embedding_size(self) -> int:
        """Width of the embedding tables; families with factorised embeddings have it as a field."""
        return self.hidden_size

    @property
    def max_length(self) -> int:
        """The longest input, special tokens included."""
        return self.max_position_embeddings

    @property
    def learning_rate(self) -> float:
        """The peak learning rate of fine-tuning: the preset's own, else by width."""
        stated = (self.extra.get("bertzoo") or {}).get("learning_rate")
        if stated:
            return float(stated)
        return 2e-5 if self.hidden_size >= 768 else 5e-5 if self.hidden_size >= 384 else 3e-4

    def with_(self, **changes) -> "EncoderConfig":
        """A copy with some fields changed."""
        return replace(self, **changes)

    def to_hf(self) -> dict[str, Any]:
        """The content of Hugging Face's `config.json`, inert keys of the file that it came from included."""
        return {**self.extra, **{theirs: getattr(self, ours) for theirs, ours in self._file_names().items()}}

    @classmethod
    def _file_names(cls) -> dict[str, str]:
        """The file's names -> ours."""
        names = {cls.hf_names.get(f.name, f.name): f.name for f in fields(cls) if f.name != "extra"}
        return {theirs: ours for theirs, ours in names.items() if theirs is not None}

    @classmethod
    def from_hf(cls, content: Mapping[str, Any]) -> "EncoderConfig":
        """Reads the content of a `config.json`; its `model_type` selects the family.

        Keys that are neither interpreted nor known to be inert are kept too; `unknown_keys` names them.

        Raises:
            ValueError: The family is unknown, a needed key is missing, or a key has a value that is not supported.
        """
        from bertzoo.models.registry import family_of

        config_class = family_of(content).config_class
        return config_class._read(content)

    @classmethod
    def _read(cls, content: Mapping[str, Any]) -> "EncoderConfig":
        check(content, FILE_RULES)
        check(content.get("bertzoo") or {}, OWN_RULES, "bertzoo.")
        check(content.get("sentence_transformers") or {}, {"activation_fn": TEXT | NULL}, "sentence_transformers.")
        for key, allowed in ONLY_VALUES.items():
            if key in content and content[key] not in allowed:
                raise ValueError(
                    f"config.json has {key} = {content[key]!r}, which bertzoo does not compute; "
                    f"supported: {', '.join(map(repr, allowed))}."
                )
        names = cls._file_names()
        missing = [theirs for theirs, ours in names.items() if ours in cls.required and theirs not in content]
        if missing:
            raise ValueError(
                f"config.json lacks {', '.join(missing)}, without which a {cls.model_type} encoder is not defined."
            )
        values = {ours: content[theirs] for theirs, ours in names.items() if theirs in content}
        if values.get("model_type") is None:
            values.pop("model_type", None)
        return cls(**values, extra={k: v for k, v in content.items() if k not in names})

    @property
    def unknown_keys(self) -> list[str]:
        """Keys of the file that bertzoo does not know; the load report names them."""
        return sorted(key for key in self.extra if key not in INERT_KEYS and key not in ONLY_VALUES)

    @classmethod
    def from_file(cls, path: str | Path) -> "EncoderConfig":
        """Reads a `config.json`."""
        return cls.from_hf(json.loads(Path(path).read_text(encoding="utf-8")))
