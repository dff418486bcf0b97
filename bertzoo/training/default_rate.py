"""The learning rate where nobody chose one."""

from bertzoo.models.config import EncoderConfig


def default_rate(config: EncoderConfig) -> float:
    """The peak learning rate of fine-tuning: what the preset says, else by width."""
    stated = (config.extra.get("bertzoo") or {}).get("learning_rate")
    if stated:
        return float(stated)
    return 2e-5 if config.hidden_size >= 768 else 5e-5 if config.hidden_size >= 384 else 3e-4
