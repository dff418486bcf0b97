"""Downloads of the Hugging Face hub."""

import re
from collections.abc import Sequence
from pathlib import Path

from bertzoo.checkpoints.errors import CheckpointError
from bertzoo.checkpoints.tensors import SINGLE_FILE, TORCH_FILE

# Of sentence-transformers: one of several modules is used for a text, and each has a folder of its own.
ROUTER_FILE = "router_config.json"
_HUB = re.compile(r"hf://([\w.-]+/[\w.-]+)(?:@(.+))?")

# What a preset needs besides its weights: configuration, tokenizer, and sentence-transformers' modules.
SMALL_FILES = (
    "config.json gliner_config.json tokenizer.json tokenizer_config.json special_tokens_map.json added_tokens.json "
    "vocab.json vocab.txt merges.txt spiece.model spm.model sentencepiece.bpe.model sentencepiece.model "
    "tokenizer.model bpe.codes dict.txt "
    "modules.json sentence_bert_config.json config_sentence_transformers.json artifact.metadata "
    f"[0-9]_*/config.json [0-9]_*/{SINGLE_FILE} [0-9]_*/{TORCH_FILE} "
    f"{ROUTER_FILE} *_[0-9]_*/*.json *_[0-9]_*/*.txt *_[0-9]_*/{SINGLE_FILE}"
).split()


def download(name: str, patterns: Sequence[str]) -> Path:
    """The folder of a repository with the files that match; without a network what the cache holds.

    Args:
        name: `hf://owner/name[@revision]`.
        patterns: The names of files, with wildcards.

    Raises:
        CheckpointError: The name is malformed, or the download fails.
    """
    from huggingface_hub import errors, snapshot_download

    match = _HUB.fullmatch(name)
    if match is None:
        raise CheckpointError(f'{name!r} is no hub name; "hf://owner/name" or "hf://owner/name@revision" is expected.')
    repo_id, revision = match.groups()
    reasons = {
        errors.GatedRepoError: "is gated: accept the terms on its page, then log in (`hf auth login`)",
        errors.RepositoryNotFoundError: f"can't be read: the hub has no repository {repo_id}, or it is private; check "
        "the spelling, for a private one log in (`hf auth login`)",
        errors.RevisionNotFoundError: f"has no revision {revision!r} (a branch, tag or commit)",
        errors.LocalEntryNotFoundError: "is not in the local cache and the hub cannot be reached (no network, or "
        "HF_HUB_OFFLINE is set). Download it once while connected, or give the path of a copy",
        errors.HFValidationError: "is no valid hub name",
    }
    try:
        return Path(snapshot_download(repo_id, revision=revision, allow_patterns=list(patterns)))
    # The base is what the hub's HTTP library, which differs between versions, raises when a download breaks off.
    except (*reasons, errors.HfHubHTTPError.__bases__[0], OSError) as error:  # type: ignore[misc]
        reason = next((text for kind, text in reasons.items() if isinstance(error, kind)), None)
        reason = reason or f"could not be downloaded: {error}. Try again: files that arrived are kept"
        raise CheckpointError(f"hf://{repo_id} {reason}.") from error
