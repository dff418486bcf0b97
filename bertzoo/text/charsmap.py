"""SentencePiece's character map: the longest sequence that has an entry is replaced (Kudo & Richardson 2018)."""

import base64
import json
import re
import struct
import unicodedata
from collections.abc import Iterator, Mapping
from functools import cached_property, lru_cache

# What may follow a character within one grapheme. The Rust library looks whole graphemes up, and takes the shortest
# entry that they begin with, where SentencePiece takes the longest one at each place (huggingface/tokenizers#2116);
# in a text without these characters both come to the same.
_JOINERS = "ᄀ-ᇿꥠ-꥿ힰ-퟿\u200c\u200d\uff9e\uff9f\U0001f1e6-\U0001f1ff\U0001f3fb-\U0001f3ff\U000e0020-\U000e007f"
# What decomposes into such characters: where a normalizer before the map does that, these count too.
_COMPOSED = "㄰-㆏㈀-㈞㉠-㉾가-힣ﾠ-ￜ"
_PREPENDED = "\u0600-\u0605\u06dd\u070f\u0890\u0891\u08e2\u0d4e\U000110bd\U000110cd"
_PRIVATE = range(0x100000, 0x10FFFE)


class Charsmap:
    """The map in a `.model` file: a double-array trie (Darts) of UTF-8 sequences, and what they become.

    Raises `ValueError` if it is malformed.
    """

    def __init__(self, content: bytes):
        size = struct.unpack_from("<I", content)[0] if len(content) >= 4 else 0
        if not size or size % 4 or size + 4 > len(content):
            raise ValueError(f"the character map of {len(content)} bytes is malformed: its trie claims {size} bytes")
        self._units = struct.unpack_from(f"<{size // 4}I", content, 4)
        self._texts = content[4 + size :]

    def normalize(self, text: str) -> str:
        """The text with every longest match replaced."""
        parts, end = [], 0
        for start, stop, output in self.replacements(text):
            parts += [text[end:start], output]
            end = stop
        return "".join([*parts, text[end:]])

    def replacements(self, text: str) -> Iterator[tuple[int, int, str]]:
        """(start, end, what takes their place) of each match, in characters."""
        start = 0
        while start < len(text):
            length, output = self._longest(text, start)
            if length:
                yield start, start + length, output
            start += length or 1

    def _longest(self, text: str, start: int) -> tuple[int, str]:
        units, found, node = self._units, None, 0
        base = _offset(units[0])
        for index in range(start, len(text)):
            for byte in text[index].encode("utf-8", "replace"):
                node = base ^ byte
                if node >= len(units) or units[node] & 0x800000FF != byte:
                    return found or (0, "")
                base = node ^ _offset(units[node])
            if units[node] >> 8 & 1 and base < len(units):
                found = index + 1 - start, self._output(units[base] & 0x7FFFFFFF)
        return found or (0, "")

    def _output(self, at: int) -> str:
        return self._texts[at : self._texts.find(b"\0", at)].decode("utf-8", "replace")


class CharsmapNormalizer:
    """A `Charsmap` as a custom part of a `tokenizers` normalizer; it keeps the alignment with the original text."""

    def __init__(self, charsmap: Charsmap):
        self._charsmap = charsmap

    def normalize(self, normalized) -> None:
        from tokenizers import Regex

        # The Rust object takes a string or a pattern to replace, not a place: the places are marked first, with one
        # private character for each output, and what follows in the match with a filler.
        text, marks = normalized.normalized, {}
        unused = (chr(i) for i in _PRIVATE if chr(i) not in text)
        characters, filler = list(text), next(unused)
        for start, stop, output in self._charsmap.replacements(text):
            if output not in marks:
                marks[output] = next(unused)
            characters[start] = marks[output]
            characters[start + 1 : stop] = filler * (stop - start - 1)
        marked = iter(characters)
        normalized.map(lambda _: next(marked))
        for output, mark in marks.items():
            normalized.replace(Regex(f"{mark}{filler}*"), output)


class ExactCharsmap:
    """Encodes anew the rows in which the Rust library's `Precompiled` normalizer may not do what SentencePiece does.

    They are few in most languages, and normalizing them in Python takes some milliseconds a thousand characters.
    """

    def __init__(self, rust):
        self._content = rust.to_str()

    @cached_property
    def _joined(self):
        return _joined(decomposed='"NFKD"' in self._content)

    @cached_property
    def _twin(self):
        """The tokenizer with the map as a part written in Python."""
        from tokenizers import normalizers

        content = json.loads(self._content)
        steps = content["normalizer"]["normalizers"]
        at = next(i for i, step in enumerate(steps) if step["type"] == "Precompiled")
        charsmap = Charsmap(base64.b64decode(steps[at]["precompiled_charsmap"]))
        before, after = (_with_normalizers(content, part).normalizer for part in (steps[:at], steps[at + 1 :]))
        twin = _with_normalizers(content, [])
        exact = normalizers.Normalizer.custom(CharsmapNormalizer(charsmap))
        twin.normalizer = normalizers.Sequence([before, exact, after])
        return twin

    def corrected(self, encodings: list, rows: list, truncation: Mapping | None, offsets: bool) -> list:
        """`encodings` of `rows`, those that may be wrong replaced."""
        wrong = [i for i, row in enumerate(rows) if self._joined.search(row if isinstance(row, str) else "".join(row))]
        if not wrong:
            return encodings
        if truncation:
            self._twin.enable_truncation(**truncation)
        else:
            self._twin.no_truncation()
        encode_batch = self._twin.encode_batch if offsets else self._twin.encode_batch_fast
        right = dict(zip(wrong, encode_batch([rows[i] for i in wrong])))
        return [right.get(i, encoding) for i, encoding in enumerate(encodings)]

    def offsets(self, encoding, row) -> list[tuple[int, int]]:
        """Where the tokens of one row stand; one that begins with a composed character begins where its base does."""
        texts = (row,) if isinstance(row, str) else row
        if not self._joined.search("".join(texts)):
            return encoding.offsets
        moved, ends = [], [0, 0]
        for (start, end), sentence in zip(encoding.offsets, encoding.sequence_ids):
            if sentence is not None:
                text = texts[sentence]
                while ends[sentence] < start < len(text) and self._joined.match(text, start):
                    start -= 1
                ends[sentence] = end
            moved.append((start, end))
        return moved

    def __getstate__(self) -> dict:
        return {"_content": self._content}


@lru_cache(maxsize=2)
def _joined(decomposed: bool):
    marks = [chr(i) for i in range(0x300, 0xE0200) if unicodedata.category(chr(i)).startswith("M")]
    return re.compile(f"[{_JOINERS}{_PREPENDED}{_COMPOSED * decomposed}{''.join(marks)}]|\r\n")


def _with_normalizers(content: Mapping, steps: list):
    from tokenizers import Tokenizer

    return Tokenizer.from_str(json.dumps({**content, "normalizer": {"type": "Sequence", "normalizers": steps}}))


def _offset(unit: int) -> int:
    return unit >> 10 << ((unit & 1 << 9) >> 6)
