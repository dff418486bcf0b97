"""BERT (Devlin et al. 2019), and with it SciBERT, BioBERT, ClinicalBERT, LegalBERT, FinBERT, MiniLM, BGE and E5."""

from bertzoo.models.family import PLAIN_HEADS, Family, Head, dense, norm

# Named alike in MPNet.
FEED_FORWARD_AND_POOLER = (
    *dense("layer_{i}/intermediate", "encoder.layer.{i}.intermediate.dense"),
    *dense("layer_{i}/output", "encoder.layer.{i}.output.dense"),
    *norm("layer_{i}/output_norm", "encoder.layer.{i}.output.LayerNorm"),
    *dense("pooler/dense", "pooler.dense"),
)


class Bert(Family):
    model_type = "bert"
    hf_name = "Bert"
    prefix = "bert."
    names = (
        ("embeddings/token", "embeddings.word_embeddings.weight"),
        ("embeddings/position", "embeddings.position_embeddings.weight"),
        ("embeddings/segment", "embeddings.token_type_embeddings.weight"),
        *norm("embeddings/norm", "embeddings.LayerNorm"),
        *dense("layer_{i}/attention/qkv", "encoder.layer.{i}.attention.self.{query,key,value}"),
        *dense("layer_{i}/attention/output", "encoder.layer.{i}.attention.output.dense"),
        *norm("layer_{i}/attention_norm", "encoder.layer.{i}.attention.output.LayerNorm"),
        *FEED_FORWARD_AND_POOLER,
    )
    heads = {
        "masked_lm": Head(
            "ForMaskedLM",
            (
                *dense("masked_lm/dense", "cls.predictions.transform.dense"),
                *norm("masked_lm/norm", "cls.predictions.transform.LayerNorm"),
                ("masked_lm/bias", "cls.predictions.bias"),
            ),
        ),
        "pair": Head("ForNextSentencePrediction", dense("pair/logits", "cls.seq_relationship")),
        "classifier": Head("ForSequenceClassification", dense("classifier/logits", "classifier")),
        **PLAIN_HEADS,
    }
    decoder = "cls.predictions.decoder.weight"
    inert_tensors = (
        "embeddings.position_ids",
        "embeddings.token_type_ids",
        "cls.predictions.decoder.weight",
        "cls.predictions.decoder.bias",
    )
    aliases = {"cls.predictions.decoder.bias": "cls.predictions.bias"}
