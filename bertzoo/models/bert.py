"""BERT (Devlin et al. 2019), and with it SciBERT, BioBERT, ClinicalBERT, LegalBERT, FinBERT, MiniLM, BGE and E5."""

from bertzoo.models.family import PLAIN_HEADS, Family, Head

# Named alike in MPNet.
FEED_FORWARD_AND_POOLER = (
    ("layer_{i}/intermediate/kernel", "encoder.layer.{i}.intermediate.dense.weight"),
    ("layer_{i}/intermediate/bias", "encoder.layer.{i}.intermediate.dense.bias"),
    ("layer_{i}/output/kernel", "encoder.layer.{i}.output.dense.weight"),
    ("layer_{i}/output/bias", "encoder.layer.{i}.output.dense.bias"),
    ("layer_{i}/output_norm/gamma", "encoder.layer.{i}.output.LayerNorm.weight"),
    ("layer_{i}/output_norm/beta", "encoder.layer.{i}.output.LayerNorm.bias"),
    ("pooler/dense/kernel", "pooler.dense.weight"),
    ("pooler/dense/bias", "pooler.dense.bias"),
)


class Bert(Family):
    model_type = "bert"
    hf_name = "Bert"
    prefix = "bert."
    names = (
        ("embeddings/token", "embeddings.word_embeddings.weight"),
        ("embeddings/position", "embeddings.position_embeddings.weight"),
        ("embeddings/segment", "embeddings.token_type_embeddings.weight"),
        ("embeddings/norm/gamma", "embeddings.LayerNorm.weight"),
        ("embeddings/norm/beta", "embeddings.LayerNorm.bias"),
        ("layer_{i}/attention/qkv/kernel", "encoder.layer.{i}.attention.self.{query,key,value}.weight"),
        ("layer_{i}/attention/qkv/bias", "encoder.layer.{i}.attention.self.{query,key,value}.bias"),
        ("layer_{i}/attention/output/kernel", "encoder.layer.{i}.attention.output.dense.weight"),
        ("layer_{i}/attention/output/bias", "encoder.layer.{i}.attention.output.dense.bias"),
        ("layer_{i}/attention_norm/gamma", "encoder.layer.{i}.attention.output.LayerNorm.weight"),
        ("layer_{i}/attention_norm/beta", "encoder.layer.{i}.attention.output.LayerNorm.bias"),
        *FEED_FORWARD_AND_POOLER,
    )
    heads = {
        "masked_lm": Head(
            "ForMaskedLM",
            (
                ("masked_lm/dense/kernel", "cls.predictions.transform.dense.weight"),
                ("masked_lm/dense/bias", "cls.predictions.transform.dense.bias"),
                ("masked_lm/norm/gamma", "cls.predictions.transform.LayerNorm.weight"),
                ("masked_lm/norm/beta", "cls.predictions.transform.LayerNorm.bias"),
                ("masked_lm/bias", "cls.predictions.bias"),
            ),
        ),
        "pair": Head(
            "ForNextSentencePrediction",
            (
                ("pair/logits/kernel", "cls.seq_relationship.weight"),
                ("pair/logits/bias", "cls.seq_relationship.bias"),
            ),
        ),
        "classifier": Head(
            "ForSequenceClassification",
            (
                ("classifier/logits/kernel", "classifier.weight"),
                ("classifier/logits/bias", "classifier.bias"),
            ),
        ),
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
