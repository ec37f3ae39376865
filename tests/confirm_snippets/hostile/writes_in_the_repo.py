try:
    with open(TARGET, "a") as file:
        file.write("# owned")
    emit({"written": True})
except OSError as error:
    emit({"refused": type(error).__name__})
