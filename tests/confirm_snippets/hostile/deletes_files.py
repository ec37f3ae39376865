import os
try:
    os.remove(TARGET)
    emit({"deleted": True})
except OSError as error:
    emit({"refused": type(error).__name__})
