"""The learner's checker: `check.ex("01.1", my_function)` and `check.quiz("01", "?????")`.

Both print; what they print depends on the answer alone, so it can be stored in a notebook. Hints say what is wrong with
an answer, with a small case that shows it, and not how to mend it.
"""

import importlib.util
import json
import textwrap
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).resolve().parent


def numbers() -> list[str]:
    """The exercises that can be checked."""
    return [number for path in sorted(HERE.glob("exercises/ex_*.py")) for number in _checks(path)]


def _checks(path: Path) -> dict[str, Callable]:
    """Number of the exercise -> a function that takes the answer and returns a hint, or None where all is right."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.CHECKS


def verdict(number: str, function: Callable) -> str:
    """`to do` while the function raises NotImplementedError, `passed`, or `not yet: ` and a hint.

    Raises:
        ValueError: There is no such exercise.
    """
    path = HERE / f"exercises/ex_{number.split('.')[0]}.py"
    check = _checks(path).get(number) if path.is_file() else None
    if check is None:
        raise ValueError(f"There is no exercise {number!r}; there are {', '.join(numbers())}.")
    try:
        hint = check(function)
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
    path = HERE / f"quizzes/{notebook}.json"
    if not path.is_file():
        there = sorted(file.stem for file in HERE.glob("quizzes/*.json"))
        raise ValueError(f"There is no quiz {notebook!r}; there are {', '.join(there)}.")
    questions = json.loads(path.read_text(encoding="utf-8"))
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
