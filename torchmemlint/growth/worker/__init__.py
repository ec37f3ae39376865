"""What runs inside of the user's program.

attach.py    hooks into torch: the head of each outermost call of a module is an *event*
frames.py    the loop that an event is an iteration of
meters.py    one number at the head of each iteration
series.py    whether these numbers grow
look.py      who keeps what: three moments (``heap.py``, ``evidence.py``), one search upwards (``holders.py``, ``unseen.py``), a ``Keeper`` of
             each holder: ``kept.py``, ``carried.py``, ``replaced.py``, ``nameless.py`` with ``cycles.py``
lines.py     the line that puts it there: two traced iterations (``marks.py``; ``fills.py`` for threads that cannot be traced)
again.py     how long a container is, asked later
session.py   all of it together
result.py    a session as plain data
running.py, main.py   a run from its begin to its end
"""
