"""The facts of a project's modules, with the questions that the analysis asks of them.

``facts`` defines them, ``module_facts`` takes them from a file, ``project`` joins them. Next to read: ``lower``.
"""
