"""Does it hold when things go wrong? Damaged input, calls that fail, processes that are killed, a busy editor, long days: campaigns that
look for faults, as long as they are given CPU time, and record where they were.

record     what a campaign has done, in JSON
child      the program in a process of its own, and how that ended
project    a small project, and the runs over it
fuzz       damaged input of every kind
generated  odd input that is valid: Python code from the grammar, and documents of JSON
faults     each call that opens, writes, renames, forks or locks fails once
kills      the program is killed at any instant
client     a client of the language server, that may say what it likes
server     load on the server, and messages that are none
long_life  a day of edits
ecosystem  what two commits find, and the time they take
packages   findings in ten packages, against a record
"""
