"""Tiny configurations of every family, in Hugging Face's words."""

SMALL = {
    "vocab_size": 50,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "max_position_embeddings": 24,
}
ROBERTA = {**SMALL, "type_vocab_size": 1, "layer_norm_eps": 1e-5, "pad_token_id": 1}
DEBERTA = {
    **SMALL,
    "relative_attention": True,
    "pos_att_type": ["c2p", "p2c"],
    "position_biased_input": False,
    "hidden_act": "relu",
}
DEBERTA_V3 = {**DEBERTA, "position_buckets": 8, "norm_rel_ebd": "layer_norm", "share_att_key": True}
MODERN = {**SMALL, "local_attention": 6, "pad_token_id": 0}
EURO = {**SMALL, "pad_token_id": 0, "num_key_value_heads": 1}
# Tiny configurations in Hugging Face's words: name -> (model type, arguments). Sizes are alike to spare compilations.
CASES = {
    "bert": ("bert", SMALL),
    "roberta": ("roberta", {**ROBERTA, "hidden_act": "relu"}),
    "xlm-roberta": ("xlm-roberta", ROBERTA),
    "camembert": ("camembert", ROBERTA),
    "albert": ("albert", {**SMALL, "embedding_size": 8, "classifier_dropout_prob": 0.0}),
    "distilbert": (
        "distilbert",
        {
            "vocab_size": 50,
            "dim": 16,
            "n_layers": 2,
            "n_heads": 2,
            "hidden_dim": 24,
            "max_position_embeddings": 24,
        },
    ),
    "electra": ("electra", {**SMALL, "embedding_size": 8, "hidden_act": "relu"}),
    "ernie": ("ernie", {**SMALL, "use_task_id": True}),
    "mpnet": ("mpnet", {**SMALL, "layer_norm_eps": 1e-5, "pad_token_id": 1}),
    "deberta": ("deberta", DEBERTA),
    "deberta-v2": ("deberta-v2", DEBERTA_V3),
    "modernbert": ("modernbert", MODERN),
    "nomic_bert": ("nomic_bert", SMALL),
    "gte": ("gte", {**SMALL, "pad_token_id": 1}),
    "eurobert": ("eurobert", EURO),
    "roformer": ("roformer", {**SMALL, "embedding_size": 8}),
}
# Other settings of the same families, tested without heads, or with the one head that depends on them.
VARIANTS = {
    "bert-tanh-gelu": ("bert", {**SMALL, "hidden_act": "gelu_new"}),
    "albert-groups": (
        "albert",
        {
            **SMALL,
            "embedding_size": 16,
            "num_hidden_layers": 5,
            "num_hidden_groups": 2,
            "inner_group_num": 2,
            "hidden_act": "relu",
        },
    ),
    "electra-wide": ("electra", {**SMALL, "embedding_size": 16}),
    "deberta-without-relations": (
        "deberta",
        {**DEBERTA, "relative_attention": False, "position_biased_input": True, "type_vocab_size": 2},
    ),
    # Inputs longer than the largest distance.
    "deberta-near": ("deberta", {**DEBERTA, "pos_att_type": ["p2c"], "max_relative_positions": 6, "legacy": False}),
    "deberta-v2-xl": ("deberta-v2", {**DEBERTA_V3, "conv_kernel_size": 3, "conv_act": "gelu", "legacy": False}),
    "deberta-v2-old": (
        "deberta-v2",
        {
            **DEBERTA,
            "pos_att_type": ["c2p"],
            "embedding_size": 8,
            "position_biased_input": True,
            "type_vocab_size": 2,
            "max_relative_positions": 6,
        },
    ),
    "deberta-v2-long": ("deberta-v2", {**DEBERTA_V3, "max_position_embeddings": 140, "position_buckets": 32}),
    "modernbert-biases": (
        "modernbert",
        {
            **MODERN,
            "classifier_pooling": "mean",
            "layer_types": ["sliding_attention", "full_attention"],
            **{f"{part}_bias": True for part in ("attention", "mlp", "norm", "classifier")},
            "classifier_activation": "relu",
        },
    ),
    "roformer-values": ("roformer", {**SMALL, "rotary_value": True, "hidden_act": "relu", "summary_type": "mean"}),
    "eurobert-biases": (
        "eurobert",
        {
            **EURO,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "classifier_pooling": "mean",
            "hidden_act": "gelu",
            "attention_bias": True,
            "mlp_bias": True,
            "tie_word_embeddings": True,
            "rope_parameters": {"rope_type": "default", "rope_theta": 300.0},
        },
    ),
    "eurobert-bos": ("eurobert", {**EURO, "num_key_value_heads": 2, "classifier_pooling": "bos"}),
    # One type of segments is the default.
    "gte-segments": (
        "gte",
        {
            **SMALL,
            "pad_token_id": 1,
            "hidden_act": "silu",
            "type_vocab_size": 2,
            "rope_parameters": {"rope_type": "linear", "factor": 1.3, "rope_theta": 100.0},
        },
    ),
    "gte-without-segments": ("gte", {**SMALL, "pad_token_id": 1, "type_vocab_size": 0}),
    # Long enough for the last bucket, which starts at a distance of 91.
    "mpnet-long": ("mpnet", {**SMALL, "max_position_embeddings": 140, "layer_norm_eps": 1e-5, "pad_token_id": 1}),
}
ALL_CASES = {**CASES, **VARIANTS}
