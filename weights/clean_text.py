"""Cleans text for pre-training: keeps paragraphs of prose, once each.

    python weights/clean_text.py IN.txt OUT.txt HELD_OUT.txt [--held-out 500] [--without FILE …]

IN.txt has a paragraph per line, the first line of a document its title, and a blank line between documents. Kept is a
paragraph of at least 8 words that ends with a sentence's punctuation, is without mark-up or addresses, consists of
letters for the most part, and was not seen before; and a document of at least 60 such words. Every so many-th document
goes to HELD_OUT.txt, as many as asked for. `--without` names text files, such as the texts of a test set: a paragraph
that has 8 words in a row in common with one of their lines is left out.
"""

import argparse
import hashlib
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

WORDS_IN_A_ROW, LEAST_WORDS, LEAST_OF_A_DOCUMENT = 8, 8, 60
MARKUP = re.compile(r"[|{}<>\\]|https?:|www\.|\[\[|\]\]|&\w+;")
SENTENCE_END = re.compile(r"[.!?][\"')\]”’]*$")
WORD = re.compile(r"\w+")


def documents(path: Path) -> Iterator[list[str]]:
    """The documents, as lists of lines."""
    lines: list[str] = []
    with open(path, encoding="utf-8") as file:
        for line in file:
            if line.strip():
                lines.append(line.strip())
            elif lines:
                yield lines
                lines = []
    if lines:
        yield lines


def sequences(text: str) -> set[int]:
    """Hashes of every eight words in a row; of all words where there are fewer."""
    words = WORD.findall(text.lower())
    last = max(1, len(words) - WORDS_IN_A_ROW + 1)
    return {hash(tuple(words[start : start + WORDS_IN_A_ROW])) for start in range(last)} if words else set()


def why_dropped(paragraph: str, seen: set[bytes], unwanted: set[int]) -> str | None:
    """The rule that drops a paragraph, or None."""
    if len(paragraph.split()) < LEAST_WORDS:
        return "short"
    if not SENTENCE_END.search(paragraph):
        return "no sentence"
    if MARKUP.search(paragraph):
        return "mark-up"
    if sum(map(str.isalpha, paragraph)) < 0.7 * len(paragraph):
        return "few letters"
    digest = hashlib.blake2b(" ".join(WORD.findall(paragraph.lower())).encode(), digest_size=8).digest()
    if digest in seen:
        return "seen before"
    if unwanted and not unwanted.isdisjoint(sequences(paragraph)):
        return "in common with --without"
    seen.add(digest)
    return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("source", "target", "held_target"):
        parser.add_argument(name, type=Path)
    parser.add_argument("--held-out", type=int, default=500)
    parser.add_argument("--without", type=Path, nargs="*", default=[])
    options = parser.parse_args()
    unwanted: set[int] = set()
    for file in options.without:
        for line in file.read_text(encoding="utf-8").splitlines():
            unwanted |= sequences(line)
    total = sum(1 for _ in documents(options.source))
    every = max(1, total // options.held_out)
    seen: set[bytes] = set()
    counts: Counter[str] = Counter()
    with open(options.target, "w", encoding="utf-8") as out, open(options.held_target, "w", encoding="utf-8") as held:
        for number, lines in enumerate(documents(options.source)):
            kept = []
            for paragraph in lines[1:]:
                rule = why_dropped(paragraph, seen, unwanted)
                counts[rule or "kept"] += 1
                if rule is None:
                    kept.append(paragraph)
            words = sum(len(paragraph.split()) for paragraph in kept)
            if words < LEAST_OF_A_DOCUMENT:
                counts["documents of too few words"] += 1
                continue
            target = held if number % every == 0 and counts["held-out documents"] < options.held_out else out
            name = "held-out" if target is held else "training"
            counts[f"{name} documents"] += 1
            counts[f"{name} words"] += words
            target.write("\n".join([lines[0], *kept]) + "\n\n")
    for name, count in sorted(counts.items()):
        print(f"{count:>12,}  {name}")


if __name__ == "__main__":
    main()
