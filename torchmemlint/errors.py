"""Every exception that torchmemlint raises on purpose.

    TorchmemlintError
    ├── UsageError        the command line cannot be carried out (exit status 2)
    ├── ConfigError       a setting is unknown, or its value is not valid (exit status 2)
    ├── SourceError       a file cannot be read, decoded or parsed (the file's result is TML000, the run goes on)
    │   ├── CannotReadError of a file that the system does not read: what is in it is unknown
    │   └── TooLargeError of a function, which libcst would take too much memory to read (a note)
    ├── UnreadError       a file that was read before cannot be read again: what is found now may be incomplete
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


class UnreadError(TorchmemlintError):
    """A file that could be read when it was scanned cannot be read again. No SourceError: nothing that would leave out a function
    or a finding for its source may go on without what the file says."""


class CannotReadError(SourceError):
    """The system does not read a file, or it is no regular file. Another run may be able to."""


class TooLargeError(SourceError):
    """A function asks too much of libcst."""


class TorchFactsError(TorchmemlintError):
    """The table of torch knowledge contradicts itself."""


class BaselineError(TorchmemlintError):
    """A baseline file cannot be used."""


class Cancelled(BaseException):
    """Nobody waits any more for what is done. No Exception: what goes on after the failure of one function must not go on now."""


class Stopped(KeyboardInterrupt):
    """Somebody wants this process to end, by a signal of this number."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number
