"""Writes models.tar.xz: tiny models of gliner with random weights, their files, outputs, losses and gradients.

gliner needs an older transformers than bertzoo's tests, so this runs in an environment of its own:

    pip install gliner==0.2.29 torch==2.13.0
    python write.py
"""

import copy
import json
import tarfile
import tempfile
from pathlib import Path

import numpy as np
import torch
import transformers
from gliner import GLiNER
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers

TEXTS = [
    "Ada Lovelace wrote to Charles Babbage in London.",
    "The U.S.-based firm paid $3.5m for a half-finished x_y model!",
    "ok",
    "Zürich’s café 🙂 sells 12 kinds of tea, and Göteborg 9 of them; no one knows why it is so.",
    "   spaces\tand\nlines   around  ",
]
LABELS = ["person", "place name", "organisation"]
# Spans of words with their labels, for the loss of the first two texts.
ENTITIES = [[(0, 1, "person"), (4, 5, "person"), (7, 7, "place name")], [(1, 5, "organisation"), (3, 3, "place name")]]
NESTED_THRESHOLD = 0.3
# Whose gradients are kept.
GRADIENTS = (
    *("rnn", "span_rep_layer", "prompt_rep_layer", "scorer", "token_rep_layer.projection"),
    "token_rep_layer.bert_layer.model.embeddings",
)
# By which the seed of the weights is chosen; gliner's loss has no gradient where a probability is below 1e-6.
LEAST_ENTITIES, GREATEST_LOGIT = 6, 10.0
SMALL = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 20}
DEBERTA = {
    **SMALL,
    "relative_attention": True,
    "position_buckets": 8,
    "norm_rel_ebd": "layer_norm",
    "share_att_key": True,
    "pos_att_type": ["p2c", "c2p"],
    "position_biased_input": False,
    "type_vocab_size": 0,
    "layer_norm_eps": 1e-7,
    "max_position_embeddings": 128,
}
MODERNBERT = {
    **SMALL,
    "global_attn_every_n_layers": 2,
    "local_attention": 8,
    "cls_token_id": 1,
    "sep_token_id": 2,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
# Name -> transformers' configuration class, its values, gliner's settings, and whether to write safetensors.
FORMS = {
    "deberta_spans": ("DebertaV2Config", DEBERTA, {"hidden_size": 12, "max_width": 4}, False),
    "deberta_tokens": ("DebertaV2Config", DEBERTA, {"hidden_size": 16, "span_mode": "token_level"}, True),
    "bert_spans": (
        "BertConfig",
        {**SMALL, "max_position_embeddings": 128},
        {
            "hidden_size": 12,
            "max_width": 5,
            "num_rnn_layers": 0,
            "embed_ent_token": False,
            "subtoken_pooling": "last",
        },
        True,
    ),
    "modernbert_tokens": (
        "ModernBertConfig",
        MODERNBERT,
        {"hidden_size": 12, "span_mode": "token_level", "num_rnn_layers": 2},
        False,
    ),
}
SPECIALS = ["[PAD]", "[CLS]", "[SEP]", "[UNK]", "[MASK]"]


def make_tokenizer(kind: str):
    """A tiny tokenizer of a family's form, trained on the texts."""
    corpus = TEXTS + LABELS
    if kind == "BertConfig":
        rust = Tokenizer(models.WordPiece(unk_token="[UNK]"))
        rust.normalizer = normalizers.BertNormalizer(lowercase=True)
        rust.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        trainer = trainers.WordPieceTrainer(vocab_size=110, special_tokens=SPECIALS)
    elif kind == "ModernBertConfig":
        rust = Tokenizer(models.BPE())
        rust.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        trainer = trainers.BpeTrainer(vocab_size=290, special_tokens=SPECIALS, initial_alphabet=alphabet)
    else:
        rust = Tokenizer(models.Unigram())
        rust.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
        trainer = trainers.UnigramTrainer(vocab_size=80, special_tokens=SPECIALS, unk_token="[UNK]")
    rust.train_from_iterator(corpus, trainer)
    ids = [(token, rust.token_to_id(token)) for token in ("[CLS]", "[SEP]")]
    rust.post_processor = processors.TemplateProcessing("[CLS] $A [SEP]", "[CLS] $A [SEP] $B:1 [SEP]:1", ids)
    roles = {f"{role.lower().strip('[]')}_token": role for role in SPECIALS}
    return transformers.PreTrainedTokenizerFast(tokenizer_object=rust, model_max_length=128, **roles)


def randomize(model: torch.nn.Module, seed: int) -> None:
    """Weights large enough for outputs of both signs, the smaller the later the seed."""
    generator = torch.Generator().manual_seed(seed)
    scale = 0.35 * 0.99**seed
    for parameter in model.parameters():
        noise = torch.randn(parameter.shape, generator=generator)
        parameter.data += scale * noise if parameter.ndim > 1 else 0.1 * noise


def expected_outputs(finder: GLiNER) -> tuple[dict, dict]:
    """Logits, the loss and its gradients as arrays, and entities as JSON."""
    processor = finder.data_processor
    words = [[word for word, _, _ in processor.words_splitter(text)] for text in TEXTS]
    collator = finder.data_collator_class(
        finder.config, data_processor=processor, return_tokens=True, return_id_to_classes=True, prepare_labels=True
    )
    arrays = {}
    for i, text in enumerate(words):  # alone, so that there is no padding
        batch = collator([{"tokenized_text": text, "ner": []}], entity_types=[LABELS])
        tensors = {key: value for key, value in batch.items() if isinstance(value, torch.Tensor)}
        arrays[f"ids_{i}"] = tensors["input_ids"][0].numpy().astype("int32")
        tensors.pop("labels")
        with torch.no_grad():
            arrays[f"logits_{i}"] = finder.model(**tensors).logits[0].numpy()
        if "span_mask" in tensors:
            arrays[f"mask_{i}"] = tensors["span_mask"][0].numpy().reshape(arrays[f"logits_{i}"].shape[:2])
    examples = [{"tokenized_text": text, "ner": spans} for text, spans in zip(words, ENTITIES)]
    batch = collator(examples, entity_types=[LABELS] * len(examples))
    for name, gamma, alpha in (("bce", 0.0, -1.0), ("focal", 2.0, 0.75)):
        finder.model.zero_grad()
        tensors = {key: value for key, value in batch.items() if isinstance(value, torch.Tensor)}
        loss = finder.model(**tensors, gamma=gamma, alpha=alpha).loss
        loss.backward()
        arrays[f"loss_{name}"] = loss.detach().numpy()
        if name == "bce":
            grads = {key: p.grad for key, p in finder.model.named_parameters() if key.startswith(GRADIENTS)}
            arrays |= {f"gradient {key}": grad.numpy() for key, grad in grads.items()}
    options = {"labels": LABELS, "batch_size": 2}
    entities = {
        "flat": finder.inference(TEXTS, **options),
        "nested": finder.inference(TEXTS, flat_ner=False, threshold=NESTED_THRESHOLD, **options),
    }
    return arrays, entities


def write_form(name: str, folder: Path) -> None:
    config_class, values, settings, safe = FORMS[name]
    base = folder / "base"
    tokenizer = make_tokenizer(config_class)
    tokenizer.save_pretrained(base)
    config = getattr(transformers, config_class)(vocab_size=len(tokenizer), pad_token_id=0, **values)
    transformers.AutoModel.from_config(config).save_pretrained(base)
    content = {"model_name": str(base), "max_len": 40, "max_types": 5, "dropout": 0.4, **copy.deepcopy(settings)}
    finder = GLiNER.from_config(content)
    finder.eval()
    start = copy.deepcopy(finder.model.state_dict())
    for seed in range(100):
        finder.model.load_state_dict(start)
        randomize(finder.model, seed)
        arrays, entities = expected_outputs(finder)
        greatest = max(abs(array).max() for name, array in arrays.items() if name.startswith("logits"))
        if greatest < GREATEST_LOGIT and all(sum(map(len, rows)) >= LEAST_ENTITIES for rows in entities.values()):
            break
    else:
        raise RuntimeError(f"no seed gives {name} outputs that tell enough")
    target = folder / name
    finder.save_pretrained(target, safe_serialization=safe)
    saved = json.loads((target / "gliner_config.json").read_text())
    saved["model_name"] = f"example/{name}"
    (target / "gliner_config.json").write_text(json.dumps(saved, indent=2))
    np.savez(target / "expected.npz", **arrays)
    (target / "entities.json").write_text(json.dumps(entities))


def main() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder, tarfile.open(Path(__file__).parent / "models.tar.xz", "w:xz") as out:
        for name in FORMS:
            write_form(name, Path(folder))
            out.add(Path(folder) / name, name, filter=_plain)
            print(name, sorted(path.name for path in (Path(folder) / name).iterdir()))


def _plain(info: tarfile.TarInfo) -> tarfile.TarInfo:
    """An entry without owner and time."""
    info.uid = info.gid = info.mtime = 0
    info.uname = info.gname = ""
    return info


if __name__ == "__main__":
    main()
