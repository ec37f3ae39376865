"""The engine: what a function does to autograd graphs, as events.

The words
---------
*graph*     The history that one operation with grad mode on gives to its result, named by a small integer. A forward of a
            module makes one; so does a call that the analysis cannot see into (an *opaque* graph: it counts as attached
            only when the code itself gives evidence, such as a ``backward()`` through it). Arithmetic makes none of its
            own: its result is attached to the graphs of its operands. The state of memory belongs to a graph, not to a value:
            one ``backward()`` through any value frees the saved tensors of all graphs that the value is attached to.
*mark*      An integer in the same sets that names not a forward but a way: "was added to `total`", "is what `total` held
            when this pass of the loop began". Detaching drops graphs and marks together, which is just what makes them
            useful: a mark that reaches a ``backward()`` says that the accumulated value is the objective.
*value*     A set of *atoms*, each one possibility: ``Tensor``, ``Const``, ``Plain`` data, ``Obj`` (a container, an instance,
            a module), ``Func``, ``Ext`` (a name of code outside the project), ``Unknown``.
*place*     Where a value lives: a local of a frame, an attribute or an element of an object. Objects record in which
            loops they were made; a place *outlives* a loop that its object was not made in.
*grad mode* on, off, or unknown; part of the flow state.
*sink*      What finally becomes of a graph's values: cut (detached, turned to a number or an index), back-propagated,
            stored, returned, passed to code that is not visible.
*record*    Everything that one run over a root function found: graphs, sinks, events. Rules read records.

Worked example
--------------
::

    total = 0
    for x, y in loader:            # loop L
        loss = crit(model(x), y)   # forward: graph 1; loss is attached to {1}
        loss.backward()            # graph 1: back-propagated
        total += loss              # total is attached to {1, mark "added to total"}; Accumulate(total, L)
    print(total)                   # no backward through the mark: the total is no objective

On the loop's second pass ``total`` holds a tensor already and is marked "carried round L"; the assignment of a value that
holds this mark to the same place is what shows an accumulation, whether it is spelled ``+=``, ``total = 0.9 * total + loss``
or ``total = torch.add(total, loss)``. The Accumulate event says: place `total` outlives L, graphs {1}, of which {1} are freed at
the end of the step. The rule then claims graph nodes in host memory, and no more.
"""
