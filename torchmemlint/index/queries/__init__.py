"""The queries that the analysis asks of a project (``index.project``): functions over its linked modules, by what they are about."""
