"""The learner's checker: `check.ex("01.1", my_function)` and `check.quiz("01", "?????")`.

Both print; what they print depends on the answer alone, so it can be stored in a notebook. Hints say what is wrong with
an answer, with a small case that shows it, and not how to mend it.
"""

import json
import textwrap
from collections.abc import Callable
from pathlib import Path

import numpy as np

_EXERCISES: dict[str, Callable] = {}


def exercise(number: str) -> Callable:
    """Registers a specification: it takes the learner's function and returns a hint, or None where all is right."""

    def register(specification: Callable) -> Callable:
        _EXERCISES[number] = specification
        return specification

    return register


def numbers() -> list[str]:
    """The exercises that can be checked."""
    return sorted(_EXERCISES)


def verdict(number: str, function: Callable) -> str:
    """`to do` while the function raises NotImplementedError, `passed`, or `not yet: ` and a hint.

    Raises:
        ValueError: There is no such exercise.
    """
    if number not in _EXERCISES:
        raise ValueError(f"There is no exercise {number!r}; there are {', '.join(numbers())}.")
    try:
        hint = _EXERCISES[number](function)
    except NotImplementedError:
        return "to do"
    except Exception as error:
        hint = f"it raised {type(error).__name__}: {error}"
    return "passed" if hint is None else f"not yet: {hint}"


def ex(number: str, function: Callable) -> None:
    """Checks an answer to exercise `number` and prints the verdict."""
    print(f"{number}: {verdict(number, function)}")


def quiz(notebook: str, answers: str | None = None) -> None:
    """Prints the questions of a notebook; with `answers`, one letter each, what is right and why, choice by choice.

    `?` stands for a question left out.

    Raises:
        ValueError: There is no quiz for `notebook`, or `answers` has another number of letters than it has questions.
    """
    questions = json.loads(Path(__file__).with_name("quiz.json").read_text(encoding="utf-8"))
    if notebook not in questions:
        raise ValueError(f"There is no quiz {notebook!r}; there are {', '.join(sorted(questions))}.")
    questions = questions[notebook]
    if answers is None:
        print("\n\n".join(_question(number, question) for number, question in enumerate(questions, 1)))
        return
    if len(answers) != len(questions):
        raise ValueError(f"answers has {len(answers)} letters, expected {len(questions)}: one each, ? for none.")
    print("\n\n".join(_explained(*row) for row in zip(range(1, len(questions) + 1), questions, answers.lower())))
    right = sum(answer == _right(question) for question, answer in zip(questions, answers.lower()))
    print(f"\n{right} of {len(questions)} right, {answers.count('?')} left out")


def _question(number: int, question: dict) -> str:
    choices = [_wrap(f"   {letter}) ", choice["text"]) for letter, choice in zip("abcdef", question["choices"])]
    return "\n".join([_wrap(f"{number}. ", question["question"]), *choices])


def _explained(number: int, question: dict, answer: str) -> str:
    right = _right(question)
    said = {"?": "", right: " You are right."}.get(answer, f" You said {answer}.")
    whys = [_wrap(f"   {letter}) ", choice["why"]) for letter, choice in zip("abcdef", question["choices"])]
    return "\n".join([f"{number}. The answer is {right}.{said}", *whys])


def _wrap(label: str, text: str) -> str:
    return textwrap.fill(text, 100, initial_indent=label, subsequent_indent=" " * len(label))


def _right(question: dict) -> str:
    return next(letter for letter, choice in zip("abcdef", question["choices"]) if choice.get("right"))


@exercise("01.1")
def _prefix_mask(prefix_mask: Callable) -> str | None:
    cases = [(4, 2), (5, 0), (3, 3), *map(tuple, np.random.default_rng(0).integers(1, 9, (8, 2)).tolist())]
    for length, prefix in cases:
        prefix = min(prefix, length)
        hint = _prefix_mask_hint(np.asarray(prefix_mask(length, prefix)), length, prefix)
        if hint is not None:
            return f"prefix_mask({length}, {prefix}): {hint}"
    return None


def _prefix_mask_hint(mask: np.ndarray, length: int, prefix: int) -> str | None:
    if mask.shape != (length, length):
        return f"the shape is {mask.shape}, expected {(length, length)}: rows look, columns are looked at."
    if mask.dtype != bool:
        return f"the type is {mask.dtype}, expected bool."
    for i in range(length):
        for j in range(length):
            inside = f"position {i} is {'in' if i < prefix else 'after'} the prefix"
            if i == j and not mask[i, j]:
                return f"position {i} cannot see itself."
            if j < i and not mask[i, j]:
                return f"position {i} cannot see position {j}, which comes before it. Is a row who looks?"
            if j > i and bool(mask[i, j]) != (j < prefix):
                sees = "sees" if mask[i, j] else "does not see"
                return f"{inside} and {sees} position {j}. Which later ones may it see?"
    return None
