"""What an out-of-memory message means, explained from the message, its traceback, the lines around it.

``stream`` finds messages in a log, ``messages`` reads them, ``diagnose`` says what ran out, ``advice`` what to do.
"""
