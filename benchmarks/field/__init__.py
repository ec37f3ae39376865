"""Accuracy on real code: what people read and labelled there, and the programs that count it. ``README.md`` has the figures.

``repositories.txt`` names the repositories of each sample, at the commits that were read. A row of data begins with its sample:

- ``readings.jsonl``: findings that were read, each with its readers' verdicts;
- ``silenced.jsonl``: candidates that were read. No finding was made of them: they have the fact that silenced them, and no level or verdict;
- ``labelled.jsonl``: places in files that were labelled whole, without the program: a family and a cost, and no rule or reader;
- ``costs.jsonl``: no reading, but the costs of mistakes whose labels are kept outside this repository, as are the labelled packages;
- ``evidence.jsonl``: made of the readings, and of what the program knows today.
"""
