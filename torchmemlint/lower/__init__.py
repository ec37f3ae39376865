"""Functions as flow IR, made of source text.

Import the modules themselves: libcst loads slowly. Next to read: ``ir``, then ``semantics``.
"""
