"""Going on from a checkpoint, on another corpus and with a larger vocabulary (Gururangan et al. 2020)."""

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
    """A tokenizer that keeps these words whole; each new one gets an id behind the vocabulary.

    Words are matched after normalisation, so in any case where the tokenizer lowercases, and only where they stand
    alone. They may hold blanks. Those that are tokens already, or like another after normalisation, are left out, and
    so are empty ones.

    Raises:
        ValueError: A word holds other white space than single blanks.
    """
    files = tokenizer.files()
    content = json.loads(files["tokenizer.json"])
    number = tokenizer.vocabulary_size
    for word in dict.fromkeys(tokenizer.normalized(word.strip()) for word in words):
        if " ".join(word.split()) != word:
            raise ValueError(f"{word!r} is no word: it holds white space other than single blanks.")
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
    """A task from the preset `table["from"]`, for a tokenizer whose vocabulary is the preset's or begins with it.

    The rows of new tokens are the mean of those of the pieces that the old tokenizer makes of them.

    Raises:
        ValueError: The table has other keys, or the tokenizer is another one.
    """
    if set(table) != {"from"}:
        others = ", ".join(sorted(set(table) - {"from"}))
        raise ValueError(f"[encoder] has from, and so no {others}: the checkpoint says what the encoder is.")
    loaded = task.from_preset(table["from"], masking=masking, verbose=False, **options)
    old = loaded.tokenizer
    _check_vocabulary(old, tokenizer, table["from"])
    if tokenizer.vocabulary_size <= old.vocabulary_size:
        loaded.tokenizer = tokenizer
        return loaded
    size = loaded.backbone.config.vocab_size  # of which the last may belong to no token yet
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
            f"the shards were tokenized with another vocabulary than that of {preset}: token {differing} is "
            f"{_token(new, differing)!r} and not {_token(old, differing)!r}. "
            f"Make them with `bertzoo prepare --tokenizer {preset}`."
        )


def _token(tokenizer: Tokenizer, index: int) -> str | None:
    try:
        return tokenizer.id_to_token(index)
    except ValueError:
        return None
