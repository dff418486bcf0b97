"""Prompts: the words that a model expects before a text, chosen by name or by what the text is for."""

from collections.abc import Mapping
from typing import Any

DOCUMENT_PROMPTS = ("document", "passage", "corpus")
# What mteb passes; of these only the last chooses a prompt.
MTEB = {"task_metadata", "task_name", "hf_split", "hf_subset", "prompt_type"}


def document_prompt(prompts: Mapping[str, str]) -> str | None:
    """The name of the prompt for documents, or None."""
    return next((name for name in DOCUMENT_PROMPTS if name in prompts), None)


def find_prompt(
    prompts: Mapping[str, str], default: str | None, prompt: str | None, name: str | None, mteb: Mapping[str, Any]
) -> str:
    """The prompt itself where it is given, else that of the name, else that of mteb's `prompt_type`, else the default.

    Raises:
        TypeError: mteb passes no such argument.
        ValueError: No prompt has the name.
    """
    unknown = sorted(set(mteb) - MTEB)
    if unknown:
        raise TypeError(f"encode has no argument {', '.join(unknown)}.")
    if prompt is not None:
        return prompt
    if name is None and mteb.get("prompt_type") is not None:
        kind = getattr(mteb["prompt_type"], "value", mteb["prompt_type"])
        name = "query" if kind == "query" else document_prompt(prompts)
        name = name if name in prompts else None
    name = default if name is None else name
    if name is not None and name not in prompts:
        known = ", ".join(prompts) or "none"
        raise ValueError(f"prompt_name is {name!r}; the model's prompts are: {known}. Or pass prompt=, the text.")
    return "" if name is None else prompts[name]


class PromptedTask:
    """Mixed into tasks that have prompts: the constructor's arguments, and their files' form."""

    prompts: dict[str, str]
    default_prompt: str | None
    settings: dict[str, Any]

    def set_prompts(
        self, prompts: Mapping[str, str] | None, default_prompt: str | None, settings: Mapping[str, Any] | None
    ) -> None:
        """Keeps prompts and the further keys of config_sentence_transformers.json.

        Raises:
            ValueError: `default_prompt` is not among the prompts.
        """
        self.prompts, self.default_prompt = dict(prompts or {}), default_prompt
        if default_prompt is not None and default_prompt not in self.prompts:
            raise ValueError(f"default_prompt is {default_prompt!r}; the prompts are {', '.join(self.prompts)}.")
        self.settings = dict(settings or {})

    def prompt_settings(self) -> dict[str, Any]:
        """The keys of config_sentence_transformers.json, as `prompt_options` reads them."""
        return {**self.settings, "prompts": self.prompts, "default_prompt_name": self.default_prompt}


def prompt_options(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Constructor options from the keys of config_sentence_transformers.json."""
    settings = dict(settings)
    prompts = {name: text or "" for name, text in (settings.pop("prompts", None) or {}).items()}
    default = settings.pop("default_prompt_name", None)
    return {"prompts": prompts, "default_prompt": default, "settings": settings}
