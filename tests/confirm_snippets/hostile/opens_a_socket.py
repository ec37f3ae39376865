import socket
try:
    socket.create_connection(("127.0.0.1", PORT), 2).close()
    emit({"connected": True})
except OSError as error:
    emit({"refused": type(error).__name__})
