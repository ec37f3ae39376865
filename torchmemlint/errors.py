"""Every exception that torchmemlint raises on purpose.

    TorchmemlintError
    ├── UsageError        the command line cannot be carried out (exit status 2)
    ├── ConfigError       a setting is unknown, or its value is not valid (exit status 2)
    ├── SourceError       a file cannot be read, decoded or parsed (the file's result is TML000, the run goes on)
    │   └── TooLargeError of a function, which libcst would take too much memory to read (a note)
    ├── TorchFactsError   the table of torch knowledge is inconsistent (a defect of torchmemlint)
    └── BaselineError     a baseline file cannot be read or written (exit status 2)

Each carries one sentence that says what is wrong and what to do. All of them survive pickling, because worker
processes send them home.
"""

TOO_LARGE = "function too large: not analyzed"
"""How a note ends about a function that takes more steps than may be counted. No error: the others are analysed."""


class TorchmemlintError(Exception):
    """Base of all errors that torchmemlint raises on purpose; ``str(error)`` is one sentence for the user."""


class UsageError(TorchmemlintError):
    """The command line asks for something that cannot be done."""


class ConfigError(TorchmemlintError):
    """A setting is unknown or has a value that is not valid."""


class SourceError(TorchmemlintError):
    """A file cannot be read, decoded or parsed.

    ``row`` and ``column`` (1-based) point at the place where that is known, else both are 1.
    """

    def __init__(self, message: str, row: int = 1, column: int = 1) -> None:
        super().__init__(message, row, column)
        self.message, self.row, self.column = message, row, column

    def __str__(self) -> str:
        return self.message


class TooLargeError(SourceError):
    """A function asks too much of libcst."""


class TorchFactsError(TorchmemlintError):
    """The table of torch knowledge contradicts itself."""


class BaselineError(TorchmemlintError):
    """A baseline file cannot be used."""


class Stopped(KeyboardInterrupt):
    """Somebody wants this process to end, by a signal of this number."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number
