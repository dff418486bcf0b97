"""Which tokens a masked language model must guess, and what stands in their place (Devlin et al. 2019, section 3.1)."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np


@dataclass(frozen=True)
class Masking:
    """BERT's rule: a share of each row's tokens is chosen; most become [MASK], some a random token, some stay.

    Args:
        vocab_size: Tokens are 0 … vocab_size - 1.
        mask_id: The id of [MASK].
        special_ids: Never chosen, and never put in as random tokens.
        share: Share of a row's tokens that is chosen: max(1, round(share × tokens)), special tokens counted as BERT
            does.
        masked, random: Shares of the chosen that become [MASK] and a random token; the rest stay as they are.

    Raises:
        ValueError: A share is out of range, or there are no ordinary tokens.
    """

    vocab_size: int
    mask_id: int
    special_ids: tuple[int, ...] = ()
    share: float = 0.15
    masked: float = 0.8
    random: float = 0.1

    def __post_init__(self):
        if not 0 < self.share < 1 or min(self.masked, self.random) < 0 or self.masked + self.random > 1:
            raise ValueError(
                f"share must lie between 0 and 1, and masked + random be at most 1; they are "
                f"{self.share}, {self.masked} "
                f"and {self.random}."
            )
        if len(self.ordinary) == 0:
            raise ValueError("the vocabulary has special tokens only.")

    @cached_property
    def _is_special(self) -> np.ndarray:
        return ~np.isin(np.arange(self.vocab_size), self.ordinary)

    @cached_property
    def ordinary(self) -> np.ndarray:
        """The ids that are not special, ascending."""
        return np.setdiff1d(np.arange(self.vocab_size, dtype="int32"), np.asarray(self.special_ids, dtype="int32"))

    def slots(self, length: int) -> int:
        """Places for chosen tokens in each row of a batch of this length."""
        return max(1, round(self.share * length))

    def __call__(self, inputs: dict[str, np.ndarray], rng: np.random.Generator) -> tuple[dict, np.ndarray, np.ndarray]:
        """Masks a batch.

        Args:
            inputs: `token_ids` and `padding_mask`, int32 (batch, length), and what else the model takes.
            rng: Source of the draws.

        Returns:
            The inputs with masked `token_ids` and `mask_positions`, int32 (batch, slots); the right tokens there, int32
            (batch, slots); and float32 (batch, slots) weights, 0 at slots that a shorter row leaves empty.
        """
        ids = inputs["token_ids"]
        rows = np.arange(len(ids))[:, None]
        candidate = inputs["padding_mask"].astype(bool) & ~self._is_special[ids]
        lengths = inputs["padding_mask"].sum(axis=1)
        wanted = np.maximum(1, np.round(self.share * lengths)).astype(int)
        slots = self.slots(ids.shape[1])
        order = np.where(candidate, rng.random(ids.shape, dtype=np.float32), 2.0)
        # The first `slots` of a random order of each row's candidates, the chosen ones first.
        chosen = (
            np.argpartition(order, slots - 1, axis=1)[:, :slots] if slots < ids.shape[1] else np.argsort(order, axis=1)
        )
        chosen = np.take_along_axis(chosen, np.argsort(order[rows, chosen], axis=1), axis=1)
        counted = (np.arange(slots) < wanted[:, None]) & candidate[rows, chosen]
        labels = ids[rows, chosen]
        draw = rng.random(labels.shape, dtype=np.float32)
        put = np.where(draw < self.masked, np.int32(self.mask_id), labels)
        other = self.ordinary[rng.integers(0, len(self.ordinary), labels.shape)]
        put = np.where((draw >= self.masked) & (draw < self.masked + self.random), other, put)
        masked = ids.copy()
        masked[rows, chosen] = np.where(counted, put, labels)
        positions = np.where(counted, chosen, 0).astype("int32")
        batch = {**inputs, "token_ids": masked, "mask_positions": positions}
        return batch, np.where(counted, labels, 0).astype("int32"), counted.astype("float32")
