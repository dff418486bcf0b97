"""DistilBERT (Sanh et al. 2019): BERT without segments and pooler, under other names."""

from dataclasses import dataclass
from types import MappingProxyType

from bertzoo.checkpoints.json_files import integer
from bertzoo.models.config import DROPOUT, EncoderConfig
from bertzoo.models.family import PLAIN_HEADS, Family, Head

LAYER = "transformer.layer.{i}."
PRE_CLASSIFIER = {"dense_activation": "relu", "first_dropout": 0.0}


@dataclass(frozen=True)
class DistilBertConfig(EncoderConfig):
    """DistilBERT-base. `classifier_dropout` is for classification and multiple choice, `qa_dropout` for answers."""

    model_type: str = "distilbert"
    num_hidden_layers: int = 6
    type_vocab_size: int = 0
    classifier_dropout: float | None = 0.2
    qa_dropout: float = 0.1

    rules = MappingProxyType({**EncoderConfig.rules, "type_vocab_size": integer(0, 0), "qa_dropout": DROPOUT})
    hf_names = MappingProxyType(
        {
            "hidden_size": "dim",
            "num_hidden_layers": "n_layers",
            "num_attention_heads": "n_heads",
            "intermediate_size": "hidden_dim",
            "hidden_act": "activation",
            "hidden_dropout_prob": "dropout",
            "attention_probs_dropout_prob": "attention_dropout",
            "classifier_dropout": "seq_classif_dropout",
            "type_vocab_size": None,
            "layer_norm_eps": None,
        }
    )


class DistilBert(Family):
    model_type = "distilbert"
    hf_name = "DistilBert"
    prefix = "distilbert."
    config_class = DistilBertConfig
    names = (
        ("embeddings/token", "embeddings.word_embeddings.weight"),
        ("embeddings/position", "embeddings.position_embeddings.weight"),
        ("embeddings/norm/gamma", "embeddings.LayerNorm.weight"),
        ("embeddings/norm/beta", "embeddings.LayerNorm.bias"),
        ("layer_{i}/attention/qkv/kernel", LAYER + "attention.{q_lin,k_lin,v_lin}.weight"),
        ("layer_{i}/attention/qkv/bias", LAYER + "attention.{q_lin,k_lin,v_lin}.bias"),
        ("layer_{i}/attention/output/kernel", LAYER + "attention.out_lin.weight"),
        ("layer_{i}/attention/output/bias", LAYER + "attention.out_lin.bias"),
        ("layer_{i}/attention_norm/gamma", LAYER + "sa_layer_norm.weight"),
        ("layer_{i}/attention_norm/beta", LAYER + "sa_layer_norm.bias"),
        ("layer_{i}/intermediate/kernel", LAYER + "ffn.lin1.weight"),
        ("layer_{i}/intermediate/bias", LAYER + "ffn.lin1.bias"),
        ("layer_{i}/output/kernel", LAYER + "ffn.lin2.weight"),
        ("layer_{i}/output/bias", LAYER + "ffn.lin2.bias"),
        ("layer_{i}/output_norm/gamma", LAYER + "output_layer_norm.weight"),
        ("layer_{i}/output_norm/beta", LAYER + "output_layer_norm.bias"),
    )
    heads = {
        **PLAIN_HEADS,
        "masked_lm": Head(
            "ForMaskedLM",
            (
                ("masked_lm/dense/kernel", "vocab_transform.weight"),
                ("masked_lm/dense/bias", "vocab_transform.bias"),
                ("masked_lm/norm/gamma", "vocab_layer_norm.weight"),
                ("masked_lm/norm/beta", "vocab_layer_norm.bias"),
                ("masked_lm/bias", "vocab_projector.bias"),
            ),
        ),
        "classifier": Head(
            "ForSequenceClassification",
            (
                ("classifier/dense/kernel", "pre_classifier.weight"),
                ("classifier/dense/bias", "pre_classifier.bias"),
                ("classifier/logits/kernel", "classifier.weight"),
                ("classifier/logits/bias", "classifier.bias"),
            ),
        ),
        "multiple_choice": Head(
            "ForMultipleChoice",
            (
                ("multiple_choice/dense/kernel", "pre_classifier.weight"),
                ("multiple_choice/dense/bias", "pre_classifier.bias"),
                ("multiple_choice/logits/kernel", "classifier.weight"),
                ("multiple_choice/logits/bias", "classifier.bias"),
            ),
        ),
    }
    classifier_uses_pooler = False
    multiple_choice_uses_pooler = False
    decoder = "vocab_projector.weight"
    inert_tensors = ("embeddings.position_ids", "vocab_projector.weight")

    def block(self, config, index, **options):
        return super().block(config, index, attention_output_dropout=0.0, **options)

    def pooler(self, config, **options):
        return None

    def classifier(self, config, num_labels, **options):
        return super().classifier(config, num_labels, **PRE_CLASSIFIER, **options)

    def token_classifier(self, config, num_labels, **options):
        return super().token_classifier(config, num_labels, dropout_rate=config.hidden_dropout_prob, **options)

    def qa(self, config, **options):
        return super().qa(config, dropout_rate=config.qa_dropout, **options)

    def multiple_choice(self, config, **options):
        return super().multiple_choice(config, **PRE_CLASSIFIER, **options)
