"""Reads a pickle as data: a stack machine that builds containers and never imports, calls or sets anything.

`pickle.Unpickler` with a restricted `find_class` still allocates what a hostile file declares (a string of 2**40 bytes,
memo slot 2**32) and recurses in C when it hashes nested keys, so the opcodes are interpreted here, from
`pickletools.genops`, and those that PyTorch's checkpoints do not need are refused.
"""

import pickletools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import BinaryIO

from bertzoo.checkpoints.errors import CheckpointError

# Names and small settings are all that a checkpoint's pickle holds; tensors lie outside it.
LONGEST_ARGUMENT = 1 << 24

_LITERALS = frozenset({
    "INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT", "STRING", "BINSTRING",
    "SHORT_BINSTRING", "UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8", "BINBYTES", "SHORT_BINBYTES",
    "BINBYTES8",
})  # fmt: skip
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False, "EMPTY_TUPLE": ()}
_IGNORED = frozenset({"PROTO", "FRAME", "STOP"})
# Tuples are left out: hashing a deeply nested one overflows the C stack.
_LARGEST_KEY = 1 << 32
_KEYS = (str, bytes, int, float, type(None))


class Attributes(dict):
    """What stands for an object that holds settings: its attributes by name."""


@dataclass(frozen=True)
class Rebuild:
    """What an allowed global stands for when the file calls it: `build(arguments)`, a function of ours."""

    name: str
    build: Callable[[tuple], object]


class BoundedStream:
    """A binary file that never allocates more than it holds, nor more than `LONGEST_ARGUMENT`, for one read."""

    def __init__(self, file: BinaryIO, size: int):
        self._file, self._size = file, size
        self.tell = file.tell

    def read(self, count: int) -> bytes:
        if count > min(LONGEST_ARGUMENT, self._size - self.tell()):
            raise CheckpointError(f"its pickle is cut off or damaged: it asks for {count} bytes more")
        return self._file.read(count)

    def readline(self) -> bytes:
        return self._file.readline(LONGEST_ARGUMENT)


def read_pickle(
    stream: BoundedStream, allowed: Mapping[str, object], persistent: Callable[[object], object] | None = None
) -> object:
    """The structure of one pickle, read up to its STOP; the stream is left just behind it.

    allowed: what each global ("module.name") stands for: a `Rebuild`, or any inert object.
    persistent: what a persistent id (PyTorch: a storage) stands for.
    Raises CheckpointError on damage, on an opcode that is not needed and on a global that is not allowed.
    """
    machine = _Machine(allowed, persistent)
    try:
        for opcode, argument, _ in pickletools.genops(stream):
            machine.step(opcode.name, argument)
    except CheckpointError:
        raise
    except (ValueError, OverflowError) as error:  # what genops raises on bytes that are no pickle
        raise CheckpointError(f"its pickle is damaged: {error}") from error
    return machine.pop()


class _Machine:
    def __init__(self, allowed: Mapping[str, object], persistent: Callable[[object], object] | None):
        self.allowed, self.persistent = allowed, persistent
        self.stack: list = []
        self.marks: list[int] = []
        self.memo: dict[int, object] = {}

    def step(self, name: str, argument: object) -> None:
        if name in _LITERALS:
            self.stack.append(argument)
        elif name in _CONSTANTS:
            self.stack.append(_CONSTANTS[name])
        elif name in _HANDLERS:
            _HANDLERS[name](self, argument)
        elif name not in _IGNORED:
            raise CheckpointError(f"its pickle uses the opcode {name}, which no plain checkpoint needs")

    def pop(self) -> object:
        if len(self.stack) <= (self.marks[-1] if self.marks else 0):
            raise CheckpointError("its pickle is damaged: it takes a value that is not there")
        return self.stack.pop()

    def pop_marked(self) -> list:
        if not self.marks:
            raise CheckpointError("its pickle is damaged: a MARK is missing")
        start = self.marks.pop()
        values = self.stack[start:]
        del self.stack[start:]
        return values

    def top(self, kind: type) -> object:
        value = self.pop()
        if not isinstance(value, kind):
            raise CheckpointError(f"its pickle is damaged: {kind.__name__} expected, {type(value).__name__} found")
        self.stack.append(value)
        return value

    def push_tuple(self, count: int) -> None:
        values = [self.pop() for _ in range(count)]
        self.stack.append(tuple(reversed(values)))

    def extend(self, values: list) -> None:
        self.top(list).extend(values)

    def update(self, values: list) -> None:
        target = self.top(dict)
        if len(values) % 2:
            raise CheckpointError("its pickle is damaged: a key without a value")
        for key, value in zip(values[::2], values[1::2], strict=True):
            # Numbers of any size may be chosen so that all have one hash, and each look-up goes through all others.
            if isinstance(key, (int, float)) and not abs(key) < _LARGEST_KEY:
                raise CheckpointError("its pickle uses a number of 2**32 or more as a key; names are expected")
            if not isinstance(key, _KEYS):
                raise CheckpointError(f"its pickle uses {type(key).__name__} as a key; names and numbers are expected")
            target[key] = value

    def remember(self, slot: int) -> None:
        value = self.pop()
        self.stack.append(value)
        self.memo[slot] = value

    def recall(self, slot: int) -> None:
        if slot not in self.memo:
            raise CheckpointError("its pickle is damaged: it refers to a value that it never stored")
        self.stack.append(self.memo[slot])

    def look_up(self, name: str) -> None:
        if name not in self.allowed:
            raise CheckpointError(
                f"its pickle names {name[:200]!r}, which is not on the list of what a checkpoint may hold, so the file "
                "was refused; nothing of it was run"
            )
        self.stack.append(self.allowed[name])

    def look_up_stacked(self) -> None:
        name, module = self.pop(), self.pop()
        if not (isinstance(name, str) and isinstance(module, str)):
            raise CheckpointError("its pickle is damaged: a global without a name")
        self.look_up(f"{module}.{name}")

    def reduce(self) -> None:
        arguments, function = self.pop(), self.pop()
        if not (isinstance(function, Rebuild) and isinstance(arguments, tuple)):
            raise CheckpointError(f"its pickle calls a {type(function).__name__}, which is not callable here")
        self.stack.append(function.build(arguments))

    def set_state(self) -> None:
        state = self.pop()
        target = self.top(dict)
        # A state_dict carries version numbers (`_metadata`) as attributes of its OrderedDict; they are of no use here.
        if isinstance(target, Attributes) and isinstance(state, dict):
            target.update(state)

    def resolve(self, identifier: object) -> None:
        if self.persistent is None:
            raise CheckpointError("its pickle is damaged: a storage where none can be")
        self.stack.append(self.persistent(identifier))


_HANDLERS: dict[str, Callable[[_Machine, object], None]] = {
    "MARK": lambda m, _: m.marks.append(len(m.stack)),
    "EMPTY_LIST": lambda m, _: m.stack.append([]),
    "EMPTY_DICT": lambda m, _: m.stack.append({}),
    "LIST": lambda m, _: m.stack.append(m.pop_marked()),
    "TUPLE": lambda m, _: m.stack.append(tuple(m.pop_marked())),
    "TUPLE1": lambda m, _: m.push_tuple(1),
    "TUPLE2": lambda m, _: m.push_tuple(2),
    "TUPLE3": lambda m, _: m.push_tuple(3),
    "APPEND": lambda m, _: m.extend([m.pop()]),
    "APPENDS": lambda m, _: m.extend(m.pop_marked()),
    "SETITEM": lambda m, _: m.update([m.pop(), m.pop()][::-1]),
    "SETITEMS": lambda m, _: m.update(m.pop_marked()),
    "PUT": lambda m, slot: m.remember(slot),
    "BINPUT": lambda m, slot: m.remember(slot),
    "LONG_BINPUT": lambda m, slot: m.remember(slot),
    "MEMOIZE": lambda m, _: m.remember(len(m.memo)),
    "GET": lambda m, slot: m.recall(slot),
    "BINGET": lambda m, slot: m.recall(slot),
    "LONG_BINGET": lambda m, slot: m.recall(slot),
    "GLOBAL": lambda m, name: m.look_up(name.replace(" ", ".", 1)),
    "STACK_GLOBAL": lambda m, _: m.look_up_stacked(),
    "REDUCE": lambda m, _: m.reduce(),
    "NEWOBJ": lambda m, _: m.reduce(),
    "BUILD": lambda m, _: m.set_state(),
    "PERSID": lambda m, identifier: m.resolve(identifier),
    "BINPERSID": lambda m, _: m.resolve(m.pop()),
}
