"""The page of a model on the Hugging Face hub, in Markdown with the hub's own header."""

import keras

# Class -> what the hub calls such a task.
PIPELINES = {
    "CrossEncoder": "text-ranking",
    "MaskedLM": "fill-mask",
    "MultipleChoice": "multiple-choice",
    "QuestionAnswerer": "question-answering",
    "SentenceEncoder": "sentence-similarity",
    "TextClassifier": "text-classification",
    "TokenClassifier": "token-classification",
}


def model_card(task: keras.Model, repo_id: str) -> str:
    """README.md for a task's preset: how it is loaded, what it is, and what only its author can tell."""
    name, config = type(task).__name__, task.backbone.config
    header = ["library_name: bertzoo", "tags:", "- keras", f"- {config.model_type}"]
    header += [f"pipeline_tag: {PIPELINES[name]}"] * (name in PIPELINES)
    facts = [
        f"- {task.backbone.family.hf_name} of {config.num_hidden_layers} layers × {config.hidden_size}, "
        f"{task.count_params():,} parameters, at most {config.max_length} tokens",
    ]
    labels = getattr(task, "labels", None)
    if labels:
        facts.append(
            f"- labels: {', '.join(labels[:20])}" + (f" and {len(labels) - 20} more" if len(labels) > 20 else "")
        )
    return "\n".join(
        [
            "---",
            *header,
            "---",
            f"# {repo_id.split('/')[-1]}",
            "",
            "```python",
            "import bertzoo as bz",
            "",
            f'model = bz.{name}.from_preset("hf://{repo_id}")',
            "```",
            "",
            *facts,
            "",
            "Training data, results and limits: to be told by the author.",
            "",
        ]
    )
