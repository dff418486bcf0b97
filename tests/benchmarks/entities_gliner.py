"""gliner, for `entities.py`, which runs this with the interpreter of gliner's own environment: a command a line."""

import json
import sys
import time
from pathlib import Path
from typing import Any

RESULT = "RESULT "
_models: dict[str, Any] = {}


def make(directory: str, texts: list[str], labels: list[str], config: dict, sizes: dict, share: float) -> dict:
    """Writes a model of random weights, with a tokenizer of the texts; returns the threshold above which the
    probability of so large a share of all spans is."""
    import torch
    import transformers
    from gliner import GLiNER
    from tokenizers import Tokenizer, models, pre_tokenizers, processors, trainers

    specials = ["[PAD]", "[CLS]", "[SEP]", "[UNK]", "[MASK]"]
    rust = Tokenizer(models.Unigram())
    rust.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    trainer = trainers.UnigramTrainer(vocab_size=6000, special_tokens=specials, unk_token="[UNK]")
    rust.train_from_iterator(texts, trainer)
    ids = [(token, rust.token_to_id(token)) for token in ("[CLS]", "[SEP]")]
    rust.post_processor = processors.TemplateProcessing("[CLS] $A [SEP]", "[CLS] $A [SEP] $B:1 [SEP]:1", ids)
    roles = {f"{role.lower().strip('[]')}_token": role for role in specials}
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=rust, model_max_length=512, **roles)
    torch.manual_seed(0)
    base = Path(directory) / "base"
    tokenizer.save_pretrained(base)
    encoder = transformers.DebertaV2Config(vocab_size=len(tokenizer), pad_token_id=0, **sizes)
    transformers.AutoModel.from_config(encoder).save_pretrained(base)
    finder = GLiNER.from_config({"model_name": str(base), **config})
    finder.eval()
    scores = _scores(finder, texts[:64], labels)
    last = (
        finder.model.prompt_rep_layer[3]
        if hasattr(finder.model, "prompt_rep_layer")
        else finder.model.scorer.out_mlp[3]
    )
    for parameter in (last.weight, last.bias):  # probabilities that are not all 1
        parameter.data *= 0.5 / scores.std()
    scores = torch.sigmoid(_scores(finder, texts[:64], labels))
    finder.save_pretrained(directory)
    return {"threshold": float(torch.quantile(scores, 1 - share))}


def _scores(finder: Any, texts: list[str], labels: list[str]) -> Any:
    """The logits of all spans, or those of first words."""
    import torch

    processor = finder.data_processor
    words = [[word for word, _, _ in processor.words_splitter(text)] for text in texts]
    collator = finder.data_collator_class(finder.config, data_processor=processor, prepare_labels=False)
    found = []
    for text in filter(None, words):
        batch = collator([{"tokenized_text": text, "ner": []}], entity_types=labels)
        tensors = {key: value for key, value in batch.items() if isinstance(value, torch.Tensor)}
        with torch.no_grad():
            logits = finder.model(**tensors).logits[0]
        mask = tensors.get("span_mask")
        found.append((logits[mask[0].view(logits.shape[:2])] if mask is not None else logits.min(dim=-1)[0]).flatten())
    return torch.cat(found)


def load(directory: str, threads: int) -> dict:
    """Loads a model to measure."""
    import gliner
    import torch

    torch.set_num_threads(threads)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    _models["finder"] = gliner.GLiNER.from_pretrained(directory, map_location=device)
    return {"version": f"gliner {gliner.__version__}, PyTorch {torch.__version__}"}


def tag(texts: list[str], labels: list[str], threshold: float, batch_size: int) -> dict:
    """The entities, and the seconds that they take, by the clock and of the processor."""
    begun, worked = time.perf_counter(), time.process_time()
    found = _models["finder"].inference(texts, labels, threshold=threshold, batch_size=batch_size)
    seconds = time.perf_counter() - begun, time.process_time() - worked
    return {"seconds": seconds, "entities": found}


def train(directory: str, encoder: str, rows: list[dict], config: dict, options: dict, seed: int) -> dict:
    """Trains a new model on an encoder and writes it."""
    import torch
    import transformers
    from gliner import GLiNER

    transformers.set_seed(seed)
    finder = GLiNER.from_config({"model_name": encoder, **config})
    use_cpu = not torch.cuda.is_available()
    if not use_cpu:
        finder.to("cuda")
    begun = time.perf_counter()
    options = {"save_strategy": "no", "dataloader_num_workers": 0, "report_to": "none", "seed": seed, **options}
    finder.train_model(rows, rows[:8], output_dir=f"{directory}/log", use_cpu=use_cpu, **options)
    seconds = time.perf_counter() - begun
    finder.save_pretrained(directory)
    return {"seconds": seconds}


def main() -> None:
    commands = {"make": make, "load": load, "tag": tag, "train": train}
    for line in sys.stdin:
        request = json.loads(line)
        result = commands[request.pop("do")](**request)
        print(f"\n{RESULT}{json.dumps(result)}", flush=True)


if __name__ == "__main__":
    main()
