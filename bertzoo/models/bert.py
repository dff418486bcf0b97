"""BERT (Devlin et al. 2019), and with it SciBERT, BioBERT, ClinicalBERT, LegalBERT, FinBERT, MiniLM, BGE and E5."""

from bertzoo.models.family import Family
from bertzoo.models.heads import PLAIN_HEADS, dense_names, masked_lm_head, norm_names, one_dense_head

# Other families name these alike.
EMBEDDINGS = (
    ("embeddings/token", "embeddings.word_embeddings.weight"),
    ("embeddings/position", "embeddings.position_embeddings.weight"),
    ("embeddings/segment", "embeddings.token_type_embeddings.weight"),
    *norm_names("embeddings/norm", "embeddings.LayerNorm"),
)
FEED_FORWARD_AND_POOLER = (
    *dense_names("layer_{i}/intermediate", "encoder.layer.{i}.intermediate.dense"),
    *dense_names("layer_{i}/output", "encoder.layer.{i}.output.dense"),
    *norm_names("layer_{i}/output_norm", "encoder.layer.{i}.output.LayerNorm"),
    *dense_names("pooler/dense", "pooler.dense"),
)


class Bert(Family):
    model_type = "bert"
    hf_name = "Bert"
    prefix = "bert."
    names = (
        *EMBEDDINGS,
        *dense_names("layer_{i}/attention/qkv", "encoder.layer.{i}.attention.self.{query,key,value}"),
        *dense_names("layer_{i}/attention/output", "encoder.layer.{i}.attention.output.dense"),
        *norm_names("layer_{i}/attention_norm", "encoder.layer.{i}.attention.output.LayerNorm"),
        *FEED_FORWARD_AND_POOLER,
    )
    heads = {
        "masked_lm": masked_lm_head(
            "cls.predictions.transform.dense", "cls.predictions.transform.LayerNorm", "cls.predictions.bias"
        ),
        "pair": one_dense_head("ForNextSentencePrediction", "pair", "cls.seq_relationship"),
        "classifier": one_dense_head("ForSequenceClassification", "classifier"),
        **PLAIN_HEADS,
    }
    decoder = "cls.predictions.decoder.weight"
