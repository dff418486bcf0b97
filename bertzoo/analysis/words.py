"""What each layer makes of words: the vectors of one word in many contexts."""

from dataclasses import dataclass

import numpy as np

from bertzoo.analysis.pieces import hidden_states
from bertzoo.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class WordVectors:
    """Words where they stand. vectors: float32 (layers + 1, words, hidden), the mean over a word's pieces, first of the
    embeddings' output. words: as they are written. texts: int (words,), the number of each one's text."""

    vectors: np.ndarray
    words: tuple[str, ...]
    texts: np.ndarray


def word_vectors(
    model, texts, word: str | None = None, *, tokenizer: Tokenizer | None = None, batch_size: int = 32
) -> WordVectors:
    """The vectors of each word of some texts, or of one word wherever it stands.

    Args:
        model: An `Encoder` or a task.
        texts: A string or a sequence of strings.
        word: The word, capitals or not; all words where None.
        tokenizer: What reads the texts, for an encoder or a task that has none.
        batch_size: Texts computed at once.

    Raises:
        ValueError: The word stands in no text, there are no texts, or no tokenizer.
    """
    vectors, words, numbers = [], [], []
    for number, (pieces, states) in enumerate(hidden_states(model, texts, tokenizer, batch_size)):
        for place in np.unique(pieces.word_of[~pieces.added]):
            if word is None or pieces.words[place].casefold() == word.casefold():
                vectors.append(states[:, pieces.word_of == place].mean(axis=1))
                words.append(pieces.words[place])
                numbers.append(number)
    if not words:
        what = "any word" if word is None else f"the word {word!r}"
        raise ValueError(f"no text has {what}; words are what stands between spaces, without punctuation at the ends.")
    return WordVectors(np.stack(vectors, axis=1), tuple(words), np.array(numbers))
