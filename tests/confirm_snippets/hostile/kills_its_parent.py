import os, signal
for process in {os.getppid(), PARENT}:
    try:
        os.kill(process, signal.SIGTERM if process else 0)
        emit({"signalled": process})
    except OSError as error:
        emit({"refused": type(error).__name__})
