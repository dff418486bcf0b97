"""The learner's checker: `check.ex("01.1", my_function)`, `check.quiz("01", "?????")` and `check.interview()`.

They print; what they print depends on the answer alone, so it can be stored in a notebook. Hints say what is wrong with
an answer, with a small case that shows it, and not how to mend it.
"""

import contextlib
import importlib.util
import json
import os
import random
import sys
import textwrap
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

from bertzoo.backend import disable_tensorflow_grappler

HERE = Path(__file__).resolve().parent
FILES = {"19": "bert.py"}  # notebooks whose exercises are parts of one file beside them, not cells


@contextlib.contextmanager
def _without_logs() -> Iterator[None]:
    """Drops what C++ code writes to stderr, where TensorFlow tells how it was built and that it looks for GPUs, before
    it heeds TF_CPP_MIN_LOG_LEVEL. In a notebook Python's own warnings take another way and are shown."""
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


if "ipykernel" in sys.modules:  # a notebook, which imports Keras next and trains small models for seconds
    with _without_logs():
        importlib.import_module("keras")
        disable_tensorflow_grappler()


def numbers() -> list[str]:
    """The exercises that can be checked."""
    return [number for path in sorted(HERE.glob("exercises/ex_*.py")) for number in _checks(path)]


def _checks(path: Path) -> dict[str, Callable]:
    """Number of the exercise -> a function that takes the answer and returns a hint, or None where all is right."""
    return load(path).CHECKS


def load(path: str | Path) -> ModuleType:
    """A file of the learner's, such as bert.py, read anew at each call."""
    spec = importlib.util.spec_from_file_location(Path(path).stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def verdict(number: str, function: Callable | ModuleType) -> str:
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
        file = getattr(function, "__file__", None) or getattr(getattr(function, "__code__", None), "co_filename", None)
        hint = f"it raised {raised(error, file)}"
    return "passed" if hint is None else f"not yet: {hint}"


def raised(error: BaseException, file: str | None) -> str:
    """What was raised, and the last line of the learner's own cell or file, of this name, that led to it."""
    said = f"{type(error).__name__}: {error}"
    lines = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    place = Path(file).name if lines and Path(file).name in FILES.values() else "the cell"
    return f"{said}, in line {lines[-1].lineno} of {place}: {lines[-1].line}" if lines else said


def ex(number: str, function: Callable | ModuleType) -> None:
    """Checks an answer to exercise `number`, a function or a file that `load` read, and prints the verdict."""
    print(f"{number}: {verdict(number, function)}")


def quiz(notebook: str, answers: str | None = None, reveal: bool = True) -> None:
    """Prints the questions of a notebook; with `answers`, what is right and why, choice by choice.

    A mistake in the arguments is answered by a sentence.

    Args:
        notebook: Its two digits.
        answers: One letter each, `?` for a question left out, with or without spaces: "ab?cd", "a b ? c d".
        reveal: With False only which answers are right, so that there can be a second try.
    """
    there = sorted(file.stem for file in HERE.glob("quizzes/[0-9][0-9].json"))
    if notebook not in there:
        print(f"There is no quiz {notebook!r}; there are {', '.join(there)}.")
        return
    _ask(_read(notebook), None if answers is None else list("".join(answers.split())), reveal)


def interview(notebook: str | None = None, answers: str | None = None, seed: int = 0, reveal: bool = True) -> None:
    """As `quiz`, with questions of the kind that an interviewer asks: those on `notebook`, or ten drawn from all.

    Args:
        notebook: The two digits of a notebook; None draws from all.
        answers: Letters and numbers with spaces between them, `?` for a question left out: "b ? 12.5". A number is
            right within 1 %.
        seed: Another one draws other questions.
        reveal: As of `quiz`.
    """
    questions = _read("interview")
    there = sorted({question["notebook"] for question in questions})
    if notebook is None:
        drawn = random.Random(seed).sample(range(len(questions)), 10)
        questions = [questions[place] for place in sorted(drawn)]
    elif notebook in there:
        questions = [question for question in questions if question["notebook"] == notebook]
    else:
        print(f"There are no questions on {notebook!r}; there are some on {', '.join(there)}.")
        return
    _ask(questions, None if answers is None else answers.split(), reveal)


def _read(name: str) -> list[dict]:
    return json.loads((HERE / f"quizzes/{name}.json").read_text(encoding="utf-8"))


def _ask(questions: list[dict], answers: list[str] | None, reveal: bool) -> None:
    """Prints the questions, or with answers what is right and, to reveal it, why."""
    if answers is None:
        print("\n\n".join(_question(number, question) for number, question in enumerate(questions, 1)))
        return
    if len(answers) != len(questions):
        print(f"There are {len(questions)} questions; give one answer to each, ? for none. Received: {len(answers)}.")
        return
    answers = [answer.lower() for answer in answers]
    rows = zip(range(1, len(questions) + 1), questions, answers)
    print("\n\n".join(_explained(*row) for row in rows) if reveal else "\n".join(_marked(*row) for row in rows))
    right = sum(_is_right(question, answer) for question, answer in zip(questions, answers))
    print(f"\n{right} of {len(questions)} right, {answers.count('?')} left out")


def _question(number: int, question: dict) -> str:
    asked = f"{question['question']} [{question['notebook']}]" if "notebook" in question else question["question"]
    if "answer" in question:
        return _wrap(f"{number}. ", f"{asked} (a number)")
    choices = [_wrap(f"   {letter}) ", choice["text"]) for letter, choice in zip("abcdef", question["choices"])]
    return "\n".join([_wrap(f"{number}. ", asked), *choices])


def _marked(number: int, question: dict, answer: str) -> str:
    """Whether the answer is right, and no more."""
    if answer == "?":
        return f"{number}. left out"
    return f"{number}. {answer}: {'right' if _is_right(question, answer) else 'not right, try again'}"


def _explained(number: int, question: dict, answer: str) -> str:
    said = "" if answer == "?" else " You are right." if _is_right(question, answer) else f" You said {answer}."
    if "answer" in question:
        return f"{number}. The answer is {question['answer']:,}.{said}\n" + _wrap("   ", question["why"])
    whys = [_wrap(f"   {letter}) ", choice["why"]) for letter, choice in zip("abcdef", question["choices"])]
    return "\n".join([f"{number}. The answer is {_right(question)}.{said}", *whys])


def _is_right(question: dict, answer: str) -> bool:
    if "choices" in question:
        return answer == _right(question)
    try:
        return abs(float(answer.replace(",", "")) / question["answer"] - 1) < 0.01
    except ValueError:
        return False


def _wrap(label: str, text: str) -> str:
    return textwrap.fill(text, 100, initial_indent=label, subsequent_indent=" " * len(label))


def _right(question: dict) -> str:
    return next(letter for letter, choice in zip("abcdef", question["choices"]) if choice.get("right"))
