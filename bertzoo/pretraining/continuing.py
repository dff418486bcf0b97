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
from bertzoo.tasks.task import Task
from bertzoo.text.masking import Masking
from bertzoo.text.tokenizer import Tokenizer


def extend_tokenizer(tokenizer: Tokenizer, words: Sequence[str]) -> Tokenizer:
    """A tokenizer with these words as additional tokens.

    Words are matched after normalisation, so in any case if the tokenizer lowercases, and as whole words only. They may
    contain single spaces. Words that are tokens already, duplicates after normalisation and empty strings are skipped.

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
    task: type[Task], table: dict[str, Any], tokenizer: Tokenizer, masking: Masking, options: dict[str, Any]
) -> Task:
    """A task from the preset `table["from"]`, for a tokenizer whose vocabulary is the preset's or extends it.

    The embeddings of new tokens are the mean of those of the pieces into which the old tokenizer splits them.

    Raises:
        ValueError: The table has other keys, or the tokenizer has another vocabulary.
    """
    if set(table) != {"from"}:
        others = ", ".join(sorted(set(table) - {"from"}))
        raise ValueError(f"[encoder] from takes no other keys, which the checkpoint defines. Received: {others}.")
    loaded = task.from_preset(table["from"], masking=masking, verbose=False, **options)
    old = loaded.tokenizer
    _check_vocabulary(old, tokenizer, table["from"])
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


def _check_vocabulary(old: Tokenizer, new: Tokenizer, preset: str) -> None:
    differing = next((i for i in range(old.vocabulary_size) if _token(old, i) != _token(new, i)), None)
    if differing is not None:
        raise ValueError(
            f"the corpus must be tokenized with the vocabulary of {preset}: token {differing} must be "
            f"{_token(old, differing)!r}. Received: {_token(new, differing)!r}. "
            f"Make the corpus with `bertzoo prepare --tokenizer {preset}`."
        )


def _token(tokenizer: Tokenizer, index: int) -> str | None:
    try:
        return tokenizer.id_to_token(index)
    except ValueError:
        return None
