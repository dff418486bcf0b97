"""One thing to measure, and the arrays that every contestant gets for it."""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from bertzoo.models.config import EncoderConfig

# Hidden size, layers, heads, inner size.
SIZES = {
    "mini": (256, 6, 4, 1024),
    "small": (384, 6, 12, 1536),
    "base": (768, 12, 12, 3072),
}
# ModernBERT's are deeper and narrower.
MODERN_SIZES = {
    "mini": (256, 8, 4, 384),
    "small": (384, 10, 6, 576),
    "base": (768, 22, 12, 1152),
}
VOCABULARIES = {"bert": 30522, "deberta-v3": 128100, "modernbert": 50368}


@dataclass(frozen=True)
class Case:
    """A forward or training step of a classifier.

    contestant: "bertzoo", "transformers", "transformers+compile" or "keras-hub". backend: Keras's, for those that run
        on Keras. mode: "train" or "infer". size: a key of SIZES. length, batch_size: of the padded batches. padding:
        "none", or "real" for rows whose lengths vary as those of sentences do. dtype: "float32" or "bfloat16". family:
        a key of VOCABULARIES.
    """

    contestant: str
    backend: str
    mode: str
    size: str
    length: int
    batch_size: int
    padding: str = "none"
    dtype: str = "float32"
    steps: int = 10
    dropout: float = 0.1
    family: str = "bert"

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def lengths(self) -> np.ndarray:
        """int64 (steps × batch,): the real tokens of each row."""
        rows = self.steps * self.batch_size
        if self.padding == "none":
            return np.full(rows, self.length)
        # The lengths of sentences are close to a gamma distribution; these have a mean of two fifths of the longest.
        drawn = np.random.default_rng(0).gamma(2.0, self.length / 5, rows)
        return np.clip(drawn.round().astype("int64"), 4, self.length)

    def rows(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """int32: token ids and mask (steps × batch, length), labels (steps × batch,)."""
        rng = np.random.default_rng(1)
        lengths = self.lengths()
        mask = (np.arange(self.length) < lengths[:, None]).astype("int32")
        ids = rng.integers(1000, VOCABULARIES[self.family], mask.shape).astype("int32") * mask
        return ids, mask, rng.integers(0, 2, len(ids)).astype("int32")

    def config(self) -> EncoderConfig:
        """The encoder's shape."""
        hidden, layers, heads, inner = (MODERN_SIZES if self.family == "modernbert" else SIZES)[self.size]
        shape = {
            "vocab_size": VOCABULARIES[self.family],
            "hidden_size": hidden,
            "num_hidden_layers": layers,
            "num_attention_heads": heads,
            "intermediate_size": inner,
            "hidden_dropout_prob": self.dropout,
            "attention_probs_dropout_prob": 0.0,
        }
        if self.family == "bert":
            return EncoderConfig(**shape)
        # These import Keras, which the parent process does without.
        if self.family == "modernbert":
            from bertzoo.models.modernbert import ModernBertConfig

            return ModernBertConfig(**shape)
        from bertzoo.models.deberta import DebertaV2Config

        return DebertaV2Config(
            **shape,
            type_vocab_size=0,
            position_buckets=256,
            norm_rel_ebd="layer_norm",
            share_att_key=True,
            pos_att_type="p2c|c2p",
            position_biased_input=False,
        )

    def flops(self) -> float:
        """Multiplications and additions that the real tokens of all steps need in the encoder's matrix products.

        bertzoo's last block computes the first token alone, which is all that a classifier reads; its peers' all.
        """
        from bertzoo.models.flops import encoder_flops

        places = 1 if self.contestant == "bertzoo" else None
        forward = float(encoder_flops(self.config(), self.lengths().astype("float64"), places, self.batch_size).sum())
        return 3 * forward if self.mode == "train" else forward


@dataclass(frozen=True)
class Measured:
    """What a contestant reports.

    seconds: of all steps, the median of several passes. first: seconds of the first pass, compilation included.
    memory: greatest number of bytes in use; the device's where it has its own memory.
    """

    seconds: float
    first: float
    memory: int
    device: str
    versions: str
