"""What earlier runs stored, as far as it still holds after an edit.

``docs/contributing/incremental.md`` explains it.

Outside this package (a test holds to it) only these are used:

    cache_for, clean    the cache of a project, and its end (``cache``, ``location.location_for``)
    Cache               facts of a file by its content; which folders were checked before
    CachedRun           the result of a whole run: looked up, stored (``runs``); ``word_index`` for it
    PreviousRun         a run over files of which a few changed: which are stale now (``previous_run``)
    FindingsStore       findings of single files: whether they still hold (``findings``), by their ``QueryResults``
    FunctionResults     the same of single functions, in memory, for the language server (``functions``)

The rest, from the bottom: ``records`` what is stored, as plain data · ``word_index`` which modules say a word · ``changed_keys``
where two states of a module differ · ``dependency_graph``, ``firewalls`` what depends on that · ``propagation`` the files for which
it matters · ``project_memory`` the same for the answers of a server's project. While a run is at work, ``index.query_log`` and ``index.dependency_log`` take down what is stored then.
"""
