"""Continued pre-training of a checkpoint on another corpus, with a larger vocabulary (Gururangan et al. 2020)."""

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from keras import ops

from bertzoo.checkpoints.loading import weight_names
from bertzoo.models.encoder import Encoder
from bertzoo.tasks.added_tokens import with_new_rows
from bertzoo.tasks.masked_lm import MaskedLM
from bertzoo.tasks.pretraining_heads import ForPreTraining
from bertzoo.text.masking import Masking
from bertzoo.text.tokenizer import Tokenizer


def extend_tokenizer(tokenizer: Tokenizer, words: Sequence[str]) -> Tokenizer:
    """A tokenizer with these words as additional tokens.

    Words are matched after normalisation, so in any case if the tokenizer lowercases, and as whole words only. They may
    contain single spaces. Words that are tokens already, duplicates after normalisation and empty strings are skipped.

    Args:
        tokenizer: The tokenizer, which does not change.
        words: The words to add.

    Raises:
        ValueError: A word contains other white space than single spaces.
    """
    files = tokenizer.files()
    content = json.loads(files["tokenizer.json"])
    number = tokenizer.vocabulary_size
    for word in dict.fromkeys(tokenizer.normalized(word.strip()) for word in words):
        if " ".join(word.split()) != word:
            raise ValueError(f"words may contain no white space other than single spaces. Received: {word!r}.")
        if not word or tokenizer.token_to_id(word) is not None:
            continue
        token = {"id": number, "content": word, "single_word": True, "lstrip": False, "rstrip": False}
        content["added_tokens"].append({**token, "normalized": True, "special": False})
        number += 1
    files["tokenizer.json"] = json.dumps(content).encode()
    with tempfile.TemporaryDirectory() as folder:
        for name, data in files.items():
            (Path(folder) / name).write_bytes(data)
        return Tokenizer.from_directory(folder, max_length=tokenizer.max_length)


def load_task(
    task: type[MaskedLM] | type[ForPreTraining],
    table: dict[str, Any],
    tokenizer: Tokenizer,
    masking: Masking,
    options: dict[str, Any],
) -> Any:
    """Loads a task for a tokenizer whose vocabulary is the preset's or extends it.

    The embeddings of new tokens are the mean of those of the pieces into which the old tokenizer splits them.

    Args:
        task: The class of the task.
        table: {"from": preset}, as in the file of a run.
        tokenizer: The tokenizer.
        masking: The masking of the task.
        options: `dropout`, `attention_dropout`, `remat` and `dtype`, as for `from_preset`.

    Raises:
        ValueError: The table has other keys, or the tokenizer has another vocabulary.
    """
    if set(table) != {"from"}:
        others = ", ".join(sorted(set(table) - {"from"}))
        raise ValueError(f"[encoder] from takes no other keys, which the checkpoint defines. Received: {others}.")
    preset = table["from"]
    loaded = task.from_preset(preset, masking=masking, verbose=False, **options)
    old, vocabulary = loaded.tokenizer, tokenizer.vocabulary
    token = next((token for token, index in old.vocabulary.items() if vocabulary.get(token) != index), None)
    if token is not None:
        raise ValueError(
            f"the corpus must be tokenized with the vocabulary of {preset}, in which {token!r} is token "
            f"{old.vocabulary[token]}. Received: a corpus of another vocabulary. Make it with "
            f"`bertzoo prepare --tokenizer {preset}`."
        )
    if tokenizer.vocabulary_size <= old.vocabulary_size:
        loaded.tokenizer = tokenizer
        return loaded
    size = loaded.backbone.config.vocab_size  # may exceed the vocabulary
    config = loaded.backbone.config.with_(vocab_size=max(size, tokenizer.vocabulary_size))
    encoder = Encoder(config, loaded.backbone.pooler is not None, **options)
    larger = task(encoder, tokenizer, masking, dtype=options.get("dtype"))
    sources = weight_names(loaded)
    for name, weight in weight_names(larger).items():
        value = ops.convert_to_numpy(sources[name])
        by_token = name.endswith(("/token", "/bias", "/decoder")) and value.shape[0] == size
        weight.assign(with_new_rows(value, old, tokenizer, config.vocab_size) if by_token else value)
    return larger
