"""How much arithmetic an encoder and its masked-LM head take."""

from bertzoo.config import EncoderConfig


def encoder_flops(config: EncoderConfig, length):
    """Multiplications and additions of a row's forward pass through an encoder's matrix products: float, or for an
    array of rows' lengths an array. Training takes three times as many."""
    hidden = config.hidden_size
    weights = 4 * hidden**2 + 2 * hidden * config.intermediate_size
    attention = 2 * length * hidden
    factorised = config.embedding_size * hidden if config.embedding_size != hidden else 0
    return 2.0 * length * (config.num_hidden_layers * (weights + attention) + factorised)


def head_flops(config: EncoderConfig, places: int) -> float:
    """Those of a masked-LM head at `places` tokens."""
    width = config.embedding_size
    return 2.0 * places * (config.hidden_size * width + width * config.vocab_size)
