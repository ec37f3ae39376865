"""``torchmemlint server``: findings in an editor, by the Language Server Protocol.

command    arguments, and a clear word where pygls is not installed
buffers    what is open → findings, and texts after a fix; knows nothing of the protocol
addresses  URIs of documents → files
places     rows and columns of ours ↔ lines and characters of the protocol
server     the protocol: the only importer of pygls
"""
