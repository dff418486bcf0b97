"""The configuration of an encoder, to and from Hugging Face's `config.json`."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from inspect import get_annotations
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Self, get_origin

from bertzoo.checkpoints.json_files import (
    FLAG,
    NULL,
    OBJECT,
    TEXT,
    check_values,
    choice_rule,
    integer_rule,
    list_rule,
    number_rule,
    object_rule,
)
from bertzoo.types import PROBLEM_TYPES

# Keys of Hugging Face's files that do not change what an encoder computes, or that other modules read.
INERT_KEYS = frozenset(
    """
    _attn_implementation _name_or_path add_cross_attention architectures attention_head_size
    attn_implementation auto_map bad_words_ids begin_suppress_tokens bertzoo bos_token_id
    chunk_size_feed_forward classifier_activation cls_token_id conv_groups cross_attention_hidden_size
    decoder_bias decoder_start_token_id deterministic_flash_attn directionality diversity_penalty do_sample
    down_scale_factor dtype early_stopping encoder_no_repeat_ngram_size eos_token_id
    exponential_decay_length_penalty finetuning_task forced_bos_token_id forced_eos_token_id gap_size
    global_attn_every_n_layers global_rope_theta gradient_checkpointing head_dim id2label initializer_cutoff_factor
    is_decoder is_encoder_decoder label2id language layers_to_keep length_penalty local_rope_theta
    mask_token_id max_length min_length net_structure_type no_repeat_ngram_size num_beam_groups num_beams num_labels
    num_memory_blocks num_return_sequences output_attentions output_hidden_states output_past output_scores
    pooler_fc_size pooler_hidden_size pooler_num_attention_heads pooler_num_fc_layers pooler_size_per_head
    pooler_type prefix pretraining_tp problem_type pruned_heads reference_compile remove_invalid_values
    repad_logits_with_grad repetition_penalty return_dict return_dict_in_generate rope_parameters
    sbert_ce_default_activation_function sentence_transformers sep_token_id sinusoidal_pos_embds
    sparse_pred_ignore_index sparse_prediction summary_activation
    summary_first_dropout summary_last_dropout summary_type summary_use_proj suppress_tokens talking_head
    task_specific_params temperature tf_legacy_loss tie_encoder_decoder tie_weights_ tie_word_embeddings
    tokenizer_class top_k top_p torch_dtype torchscript transformers_version typical_p use_bfloat16
    use_cache
    """.split()  # noqa: SIM905
)

# Keys with the only values that are supported: any other value would load and give wrong numbers.
ONLY_VALUES = {
    "position_embedding_type": (None, "absolute"),
    "is_decoder": (None, False),
    "add_cross_attention": (None, False),
    "pruned_heads": (None, {}),
}

# Types of fields, with the rule that a value must satisfy.
ACTIVATION = choice_rule(
    "gelu", "gelu_new", "gelu_pytorch_tanh", "gelu_fast", "gelu_python", "relu", "silu", "swish", "tanh"
)
Size = Annotated[int, integer_rule(1)]
NoSegments = Annotated[int, integer_rule(0, 0)]
PaddingId = Annotated[int, integer_rule(0)]
NonNegative = Annotated[float, number_rule(0)]
Epsilon = Annotated[float, number_rule(0, 1)]
Dropout = Annotated[float, number_rule(0, 1)]
OptionalDropout = Annotated[float | None, number_rule(0, 1) | NULL]
Flag = Annotated[bool, FLAG]
Activation = Annotated[str, ACTIVATION]

# Keys that tasks, families and commands read.
FILE_RULES = {
    "architectures": list_rule(TEXT) | NULL,
    "bertzoo": OBJECT | NULL,
    "decoder_bias": FLAG,
    "global_attn_every_n_layers": integer_rule(1),
    "global_rope_theta": number_rule(0),
    "id2label": object_rule(TEXT | number_rule() | FLAG | NULL) | NULL,
    "local_rope_theta": number_rule(0),
    "num_labels": integer_rule(1) | NULL,
    "problem_type": choice_rule(*PROBLEM_TYPES) | NULL,
    "rope_parameters": object_rule(OBJECT | TEXT | number_rule() | NULL) | NULL,
    "sbert_ce_default_activation_function": TEXT | NULL,
    "sentence_transformers": OBJECT | NULL,
    "summary_type": TEXT,
    "summary_use_proj": FLAG,
    "tie_word_embeddings": FLAG | NULL,
}
# Keys of the block `bertzoo` of config.json.
OWN_RULES = {
    "crf": FLAG,
    "enhanced_mask_decoder": FLAG,
    "head": OBJECT | choice_rule("modules.json") | NULL,
    "label_all_tokens": FLAG,
    "learning_rate": number_rule(0) | NULL,
    "max_query_length": integer_rule(1),
    "no_answer_threshold": number_rule() | NULL,
    "stride": integer_rule(0) | NULL,
    "temperature": number_rule(0) | NULL,
    "thresholds": list_rule(number_rule()) | NULL,
}


@dataclass(frozen=True)
class EncoderConfig:
    """What defines an encoder. Names are those of Hugging Face's BERT; the defaults are BERT-base's (Devlin et al.
    2019).

    A family whose file uses other names, or that has settings of its own, subclasses this. The rule in a field's type
    is checked; a subclass that only changes the default keeps it.

    Args:
        model_type: The family.
        vocab_size, type_vocab_size, max_position_embeddings: Rows of the tables of tokens, segments and positions.
        hidden_size, intermediate_size: Widths of the encoder, and inside the feed-forward parts.
        num_hidden_layers, num_attention_heads: Numbers of blocks, and of heads in each.
        hidden_act: The activation of the feed-forward parts.
        hidden_dropout_prob, attention_probs_dropout_prob: Dropout of vectors, and of attention weights.
        initializer_range: Standard deviation of the initial weights.
        layer_norm_eps: Added to the variance in normalisations.
        pad_token_id: The padding token.
        classifier_dropout: Dropout before a task's last layer; `hidden_dropout_prob` where None.
        extra: Keys of a file that do not change what the encoder computes; they are written back unchanged.

    Raises:
        ValueError: A value is out of range or not supported.

    Example:
        >>> config = bz.EncoderConfig(hidden_size=256, num_attention_heads=4, intermediate_size=1024)
        >>> config.hidden_size, config.num_hidden_layers
        (256, 12)
    """

    model_type: str = "bert"
    vocab_size: Size = 30522
    hidden_size: Size = 768
    num_hidden_layers: Size = 12
    num_attention_heads: Size = 12
    intermediate_size: Size = 3072
    hidden_act: Activation = "gelu"
    hidden_dropout_prob: Dropout = 0.1
    attention_probs_dropout_prob: Dropout = 0.1
    max_position_embeddings: Size = 512
    type_vocab_size: Size = 2
    initializer_range: NonNegative = 0.02
    layer_norm_eps: Epsilon = 1e-12
    pad_token_id: Annotated[int, integer_rule(0) | NULL] = 0
    classifier_dropout: OptionalDropout = None
    extra: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)

    # Field -> key in files, where they differ; None if the family fixes the value and files do not have it.
    hf_names: ClassVar[Mapping[str, str | None]] = MappingProxyType({})
    # Keys that files must have: a default would silently be wrong for some models.
    required: ClassVar[tuple[str, ...]] = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads")

    def __post_init__(self):
        annotations = [item for base in reversed(type(self).__mro__) for item in get_annotations(base).items()]
        rules = {name: kind.__metadata__[0] for name, kind in annotations if get_origin(kind) is Annotated}
        check_values({name: getattr(self, name) for name in rules}, rules)
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
    def default_learning_rate(self) -> float:
        """The peak learning rate of fine-tuning: the preset's own, else by width."""
        stated = (self.extra.get("bertzoo") or {}).get("learning_rate")
        if stated:
            return float(stated)
        return 2e-5 if self.hidden_size >= 768 else 5e-5 if self.hidden_size >= 384 else 3e-4

    def replace(self, **changes: Any) -> Self:
        """A copy with some fields changed."""
        return replace(self, **changes)

    def to_hf(self) -> dict[str, Any]:
        """The content of Hugging Face's `config.json`, inert keys of the file that it came from included."""
        return {**self.extra, **{key: getattr(self, name) for key, name in self._file_names().items()}}

    @classmethod
    def _file_names(cls) -> dict[str, str]:
        """The file's keys -> the fields."""
        keys = {f.name: cls.hf_names.get(f.name, f.name) for f in fields(cls) if f.name != "extra"}
        return {key: name for name, key in keys.items() if key is not None}

    @classmethod
    def from_hf(cls, config_dict: Mapping[str, Any]) -> "EncoderConfig":
        """Reads the content of a `config.json`; its `model_type` selects the family.

        Keys that are neither interpreted nor known to be inert are kept too; `unknown_keys` names them.

        Raises:
            ValueError: The family is unknown, a needed key is missing, or a key has a value that is not supported.
        """
        from bertzoo.models.registry import find_family_of_config

        return find_family_of_config(config_dict).config_class._read(config_dict)

    @classmethod
    def _read(cls, content: Mapping[str, Any]) -> Self:
        check_values(content, FILE_RULES)
        check_values(content.get("bertzoo") or {}, OWN_RULES, "bertzoo.")
        check_values(
            content.get("sentence_transformers") or {}, {"activation_fn": TEXT | NULL}, "sentence_transformers."
        )
        for key, allowed in ONLY_VALUES.items():
            if key in content and content[key] not in allowed:
                raise ValueError(
                    f"config.json has {key} = {content[key]!r}, which bertzoo does not compute; "
                    f"supported: {', '.join(map(repr, allowed))}."
                )
        names = cls._file_names()
        missing = [key for key, name in names.items() if name in cls.required and key not in content]
        if missing:
            raise ValueError(f"config.json lacks {', '.join(missing)}, which a {cls.model_type} encoder needs.")
        values = {name: content[key] for key, name in names.items() if key in content}
        if values.get("model_type") is None:
            values.pop("model_type", None)
        return cls(**values, extra={key: value for key, value in content.items() if key not in names})

    @property
    def unknown_keys(self) -> list[str]:
        """Keys of the file that bertzoo does not know; the load report names them."""
        return sorted(key for key in self.extra if key not in INERT_KEYS and key not in ONLY_VALUES)

    @classmethod
    def from_file(cls, path: str | Path) -> "EncoderConfig":
        """Reads a `config.json`."""
        return cls.from_hf(json.loads(Path(path).read_text(encoding="utf-8")))
