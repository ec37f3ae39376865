"""The kinds of keys: parts of the facts that change by themselves.

The dependency log (``index.dependency_log``) notes which of them a result was computed from; ``incremental.changed_keys``
compares their values.
"""

from __future__ import annotations

(
    NAME, HEAD, SCOPE, FLOW, WHOLE, BACKWARD, BASES, STARS, IMPORTS, OWN, INSIDE, MODULE,
    BINDERS, INDEX, READS, ALIASES, METHODS, LOOKED_UP, PATTERNS, NAMED, HOLDERS, WORD, CUDA, LEAVES,
    CALLS, BELOW, LEAK, TEXT, SOURCE,
    SITE, ORDER, LEAKS, OBJECTS, OBJECT, MEMBER, TESTS,
    FUNCTIONS, MEMBERS, LOCALS, HELD,
    PLACES, PLACED, OVERRIDES, ATTRS, ABSOLUTE, TARGETS, STORES,
) = range(1, 48)  # fmt: skip
"""Of one module, with its path and a name in it:

    NAME      what the name is at its place: a function, a class, an import, a variable
    MEMBER    of a class, instead of the path: whether it has the method, and what it assigns to the attribute
    HEAD      a function's header;  SCOPE  that, its locals and what is defined right inside;  FLOW  that, what it returns and which managers it holds
    BACKWARD  whether a function calls ``backward``;  WHOLE  all facts of a function or class;  BASES  a class's bases
    ATTRS     a class's attributes;  OWN  the methods of a class;  INSIDE  all of a function and of those inside it
    STARS, IMPORTS, TESTS, MODULE  the star imports, all imports, whether it has tests, everything

Of all modules, with one word (``Tables``):

    BINDERS   where it is bound at module level;  INDEX  the calls that end in it;  READS  where it is taken as a value
    ALIASES   what else it is called;  METHODS  the classes with such a method;  LOOKED_UP  whether it is looked up as text
    PATTERNS  names that are put together;  NAMED  the methods of that name;  HOLDERS  the classes with such an attribute
    WORD      whether anything says it;  CUDA  whether anything mentions it;  LEAVES  what leaves grad mode switched
    ABSOLUTE  instead of a word, a dotted name: what it is in the project
    STORES    the modules that store an attribute of that name, but by a plain assignment to that of the own object

Computed from these, over all modules, behind firewalls:

    CALLS     the calls that reach a function;  PLACES  their places;  PLACED  the places of all calls in a function
    BELOW     the classes below a class;  OVERRIDES  those of them that define a method, by the class and its name
    LEAK      the switches before calls in a function

Whether any module says a word in this way, which decides what is in INDEX and READS, and is never logged (see ``Tables``):

    FUNCTIONS  it is the last name of a function or class;  MEMBERS, LOCALS  an attribute, or a name, that may be an object or a method
    HELD       an attribute that a method assigns, which may be one;  TARGETS  it is a part of the name of what is imported

Of files: TEXT, SOURCE of a function. SITE, ORDER, LEAKS, OBJECTS and OBJECT are the firewalls behind which CALLS, BELOW and LEAK
stand: what a call means, the order of a class's bases, all leaks, which calls may be of objects, and what such a call means.
"""
