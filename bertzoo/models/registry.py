"""The families: one short file each that states what differs from BERT."""

from collections.abc import Mapping
from typing import Any

from bertzoo.models.albert import Albert
from bertzoo.models.bert import Bert
from bertzoo.models.config import EncoderConfig
from bertzoo.models.deberta import Deberta, DebertaV2
from bertzoo.models.distilbert import DistilBert
from bertzoo.models.electra import Electra
from bertzoo.models.ernie import Ernie
from bertzoo.models.eurobert import EuroBert
from bertzoo.models.family import Family
from bertzoo.models.gte import Gte
from bertzoo.models.modernbert import ModernBert
from bertzoo.models.mpnet import MPNet
from bertzoo.models.nomic_bert import NomicBert
from bertzoo.models.roberta import Camembert, Roberta, XLMRoberta
from bertzoo.models.roformer import RoFormer

FAMILIES: dict[str, Family] = {}


def register(family: Family) -> None:
    """Adds a family under its `model_type`, so that configurations and checkpoints find it."""
    FAMILIES[family.model_type] = family


for _cls in (
    Albert,
    Bert,
    Camembert,
    Deberta,
    DebertaV2,
    DistilBert,
    Electra,
    Ernie,
    EuroBert,
    Gte,
    ModernBert,
    MPNet,
    NomicBert,
    Roberta,
    RoFormer,
    XLMRoberta,
):
    register(_cls())


def find_family_of_config(config_dict: Mapping[str, Any]) -> Family:
    """The family that the content of a `config.json` names.

    Files of early BERT models (SciBERT, BioBERT …) name none; they are BERTs if they have its keys.

    Raises:
        ValueError: The family is unknown, or the file asks for code of its own.
    """
    model_type = config_dict.get("model_type")
    if model_type is None and "auto_map" in config_dict:
        raise ValueError(
            "config.json has auto_map and no model_type: it relies on code of its own, which bertzoo never runs."
        )
    if model_type is None and {"hidden_size", "type_vocab_size"} <= set(config_dict):
        model_type = "bert"
    for family in FAMILIES.values():
        if model_type in family.former_model_types:
            return family
    if not isinstance(model_type, str) or model_type not in FAMILIES:
        raise ValueError(f"config.json has model_type {model_type!r}; bertzoo has {', '.join(sorted(FAMILIES))}.")
    return FAMILIES[model_type]


def config_and_family_from_hf(config_dict: Mapping[str, Any]) -> tuple[EncoderConfig, Family]:
    """The configuration that the content of a `config.json` makes, and its family.

    Raises:
        ValueError: The family is unknown, or a value is not supported.
    """
    config = EncoderConfig.from_hf(config_dict)
    return config, FAMILIES[config.model_type]


def check_family_config(config: EncoderConfig) -> None:
    """Raises ValueError if the configuration names an unknown family, or is not of that family's class."""
    if config.model_type not in FAMILIES:
        known = ", ".join(sorted(FAMILIES))
        raise ValueError(f"model_type must be one of {known}. Received: {config.model_type!r}.")
    config_class = FAMILIES[config.model_type].config_class
    if not isinstance(config, config_class):
        raise ValueError(
            f"a {config.model_type} encoder needs a {config_class.__name__}. Received: a {type(config).__name__}. "
            "EncoderConfig.from_hf makes the right one from the keys of a config.json."
        )
