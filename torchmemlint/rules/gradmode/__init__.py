"""Rules about graphs that are built for nothing.

``judgement`` decides for all of them. Next to read: ``rules/evidence``, whose facts it asks for.
"""
